"""Configuration of the documentation. `make docs` builds it; it needs no network."""

from __future__ import annotations

import os
import sys
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["MATPLOTLIBRC"] = str(HERE / "_static" / "matplotlibrc")

import orthornn  # noqa: E402

project = "orthornn"
author = "the orthornn authors"
project_copyright = author
version = release = orthornn.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "sphinx_design",
    "sphinx_copybutton",
    "plain_markdown",
    "mathml",
    "docstrings",
    "argument_types",
    "faces",
]
exclude_patterns = ["_build", "_extensions", "_templates", "*.in.md", "**/*.in.md", "**.ipynb_checkpoints"]
default_role = "literal"
templates_path = ["_templates"]

# Markdown and notebooks
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "fieldlist", "attrs_inline", "attrs_block"]
myst_heading_anchors = 3
myst_links_external_new_tab = False
smartquotes = False  # ' is the transpose in formulas of plain text
# Every tutorial is executed; what has not changed since the last build is taken from the cache.
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / "notebooks")
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True

# Reference
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_class_signature = "mixed"
autoclass_content = "class"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_param = True

napoleon_preprocess_types = False
viewcode_line_numbers = False

# Links into torch and NumPy need their inventories, which a machine without a network cannot fetch: they are used where
# a file is in docs/_inventories or where ORTHORNN_DOCS_ONLINE is set, and left out otherwise.
_INVENTORIES = {
    "python": "https://docs.python.org/3/",
    "numpy": "https://numpy.org/doc/stable/",
    "torch": "https://docs.pytorch.org/docs/stable/",
}


def _reachable(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5):
            return True
    except OSError:
        return False


intersphinx_mapping = {}
for _name, _address in _INVENTORIES.items():
    _file = HERE / "_inventories" / f"{_name}.inv"
    if _file.exists():
        intersphinx_mapping[_name] = (_address, str(_file))
    elif os.environ.get("ORTHORNN_DOCS_ONLINE") and _reachable(_address + "objects.inv"):
        intersphinx_mapping[_name] = (_address, None)

# Pages
html_theme = "furo"
html_title = f"orthornn {version}"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["orthornn.css"]
html_favicon = "_static/mark.svg"
html_logo = "_static/mark.svg"
html_baseurl = os.environ.get("ORTHORNN_DOCS_URL", "")  # for canonical links, and for the links of the page for 404
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {
    "sidebar_hide_name": False,
    "light_css_variables": {"color-brand-primary": "#1d5fb4", "color-brand-content": "#1d5fb4"},
    "dark_css_variables": {"color-brand-primary": "#7db4f5", "color-brand-content": "#7db4f5"},
}
pygments_style = "friendly"
pygments_dark_style = "native"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
