"""The search of the site leads to the page that a reader wants: `make test-site` builds it, without running the tutorials."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.site

ROOT = Path(__file__).parents[1]
FIRST = {
    "lstm": "how_to/from_torch",
    "csv": "how_to/classify_csv",
    "classify": "how_to/classify_csv",
    "classification": "how_to/classify_csv",
    "forecast": "how_to/forecasts",
    "microcontroller": "how_to/microcontroller",
    "reset": "how_to/episodes",
    "stream": "how_to/streaming",
    "gpu": "how_to/gpu",
    "resume": "how_to/runs",
    "dataframe": "how_to/dataframes",
    "install": "installation",
    "table": "how_to/your_data",
    "agent": "how_to/agents",
    "irregular": "how_to/irregular_time",
    "robust": "how_to/certificates",
    "automaton": "how_to/exact_machines",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return the pages that the search of the built site finds for each query, best first."""
    for package in ("sphinx", "myst_nb", "furo"):
        pytest.importorskip(package, reason="The extra `docs` is not installed.")
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed.")
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-D", "nb_execution_mode=off"]
    subprocess.run([*build, "-d", str(folder / "doctrees"), str(ROOT / "docs"), str(folder / "html")], check=True)
    words = [node, str(ROOT / "tests" / "search_site.js"), str(folder / "html"), *FIRST]
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


@pytest.mark.parametrize("query", FIRST)
def test_a_search_leads_to_its_page(query, found):
    assert found[query][0] == FIRST[query]
