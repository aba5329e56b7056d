"""Types of a column of labels that description.json names."""

from __future__ import annotations

import re

MOST_CATEGORIES = 10_000
PANDAS_DTYPES = re.compile(
    r"U?Int(8|16|32|64)|Float(32|64)|boolean|string|[a-z0-9_]{1,20}\[pyarrow\]|period\[[\w-]{1,20}\]"
)
