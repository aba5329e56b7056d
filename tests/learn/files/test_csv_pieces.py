"""Pieces of a file: whole lines and whole quoted cells, together the file."""

from __future__ import annotations

import io

import pytest

from orthornn.learn.files.csv_pieces import may_have_empty_line, pieces, reads_alike

CONTENT = b'1,"a\n\n""b"\n2,"c\r\nd"\r\n\r\n\n3,\r\n"",""\n4,e'


@pytest.mark.parametrize("size", range(1, len(CONTENT) + 2))
def test_pieces_are_the_file_and_end_between_lines(size):
    for end in (b"", b"\n", b"\r\n", b"\n\r\n\n"):
        found = list(pieces(io.BytesIO(CONTENT + end), size))
        whole = b"".join(found)
        assert whole.rstrip(b"\r\n") == CONTENT
        assert len(whole) - len(CONTENT) <= 2  # without empty lines at the end
        assert all(piece.count(b'"') % 2 == 0 for piece in found)
        assert all(piece.endswith(b"\n") and piece.strip(b"\r\n") for piece in found[:-1])


def test_files_without_lines_have_no_pieces():
    assert not [*pieces(io.BytesIO(b""), 3), *pieces(io.BytesIO(b"\n\r\n\n\n"), 2)]


def test_a_quote_without_its_partner_ends_with_the_file():
    assert list(pieces(io.BytesIO(b'1\n"2\n3\n4\n'), 1)) == [b"1\n", b'"2\n3\n4\n']


@pytest.mark.parametrize(
    ("piece", "alike"),
    [
        (b'1,"a"\n"b",2', True),
        (b'"a""b","",""""\r\n', True),
        (b"1\r\n2\r\n", True),
        (b"1\r2\n", False),
        (b"1\0\n", False),
        (b'a "b" c\n', False),
        (b'"a" ,2\n', False),
        (b'1, "a"\n', False),
        (b'"a\n', False),
    ],
)
def test_only_plain_quotes_and_ends_of_lines_are_left_to_pyarrow(piece, alike):
    assert reads_alike(piece, ",") is alike


def test_empty_lines_are_seen():
    assert all(map(may_have_empty_line, (b"\n1", b"\r\n1", b"1\n\n2", b"1\r\n\r\n2")))
    assert not any(map(may_have_empty_line, (b"1\n2\n", b"1\r\n2\r\n")))
