from __future__ import annotations

import pytest

from orthornn import strict_json
from orthornn.errors import DataError

BAD = {
    b'{"steps": 1, "steps": 2}': "the key 'steps' is there twice",
    b'{"a": [{"b": 1, "b": 1}]}': "the key 'b' is there twice",
    b"[" * 100_000: "nested too deeply",
    b'{"a":' * 100_000: "nested too deeply",
    b"\xff\xfe{": "Expected JSON in",
    b"{": "Expected JSON in",
    b"1" * 5000: "Expected JSON in",
}


@pytest.mark.parametrize("content", BAD, ids=range(len(BAD)))
def test_what_is_no_plain_json_is_one_error_with_the_files_name(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=BAD[content]) as caught:
        strict_json.read(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 500
    with pytest.raises(ValueError):
        strict_json.loads(content)


def test_what_is_json_is_read(tmp_path):
    (tmp_path / "a.json").write_text('{"a": [1, 2.5, null, {"a": "b"}]}')
    assert strict_json.read(tmp_path / "a.json") == {"a": [1, 2.5, None, {"a": "b"}]}
    with pytest.raises(DataError, match="cannot read"):
        strict_json.read(tmp_path / "none.json")
