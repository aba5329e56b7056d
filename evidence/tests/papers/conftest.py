from __future__ import annotations

import pytest

from support.made_data import write_data


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data") / "data")
