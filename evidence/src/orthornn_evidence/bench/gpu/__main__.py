"""`orthornn bench --device cuda` without the packages of the command line: python -m orthornn_evidence.bench.gpu --out
FOLDER.
"""

from __future__ import annotations

import sys
from pathlib import Path

from orthornn.errors import OrthornnError

from ...once_parser import OnceParser
from ..cases import Case, Work
from .benchmark import CASES, BenchmarkPlan, run


def main() -> int:
    """Return the exit status: 1 if a verification failed or nothing can be measured."""
    parser = OnceParser(prog="python -m orthornn_evidence.bench.gpu", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--T", type=int, default=Work.T)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=300)
    options = parser.parse_args()
    try:
        work = Work(T=options.T, device=options.device)
        cases = [Case.parse(name) for name in options.cases.split(",")]
        run(
            BenchmarkPlan(options.out, cases, work, options.rounds, options.seconds),
            lambda line: print(line, flush=True),
        )
    except OrthornnError as error:
        print(f"orthornn: {error}", file=sys.stderr)
        return 1
    finally:
        table = options.out / "table.txt"
        print(table.read_text() if table.exists() else "no results", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
