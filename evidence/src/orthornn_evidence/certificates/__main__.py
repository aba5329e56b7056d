"""`python -m orthornn_evidence.certificates pixels` or `... tanks`; what is finished is not computed again."""

import sys

from . import pixels, tanks

if sys.argv[1:2] not in (["pixels"], ["tanks"]):
    sys.exit("Expected pixels or tanks. Call python -m orthornn_evidence.certificates pixels --help.")
sys.exit({"pixels": pixels, "tanks": tanks}[sys.argv[1]].main(sys.argv[2:]))
