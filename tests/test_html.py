"""Tables as HTML hold what a stranger's file says as text."""

from __future__ import annotations

import xml.etree.ElementTree

from orthornn._html import table_html


def test_text_is_text():
    found = table_html("<b>\x00", ["a&b", "c"], [["<script>", 1.5], ["\x1b[31m", None]], ["x < y"], [True, False])
    tree = xml.etree.ElementTree.fromstring(found)
    assert [cell.text for cell in tree.iter("td")] == ["<script>", "1.5", "\ufffd[31m", "None"]
    assert [head.text for head in tree.iter("th")] == ["a&b", "c"]
    assert tree.find("div").text == "x < y"
    assert tree.find("table/caption").text == "<b>\ufffd"
    assert [head.attrib["style"] for head in tree.iter("th")] == ["text-align:left", "text-align:right"]


def test_a_table_without_a_title():
    assert "caption" not in table_html("", ["a"], [])
