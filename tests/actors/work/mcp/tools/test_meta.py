"""Finding tools by words, and what models read of answers."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import has_message

from callboard.actors.work.mcp.tools.direct import error_of, text_of_result, without_bytes
from callboard.actors.work.mcp.tools.tool_list import search, words
from callboard.protocol.mcp.model import McpTool

TOOLS = [
    McpTool(name="read_file", description="Reads a file from the disk."),
    McpTool(name="writeFile", description="Writes a text to a path."),
    McpTool(name="list_issues", description="Lists the open issues of a repository."),
    McpTool(name="get_time", description="The current time in a time zone."),
]


def names(query: str, most: int = 8) -> list[str]:
    return [tool.name for tool in search(query, "srv", TOOLS, most)]


def test_words_of_a_name_are_taken_apart_and_compared_without_case_and_plural() -> None:
    assert words("readFiles read_file READ-FILE") == ["read", "file", "read", "file", "read", "file"]
    assert words("class glass bus ids") == ["class", "glass", "bus", "ids"]


def test_the_tool_that_fits_best_comes_first() -> None:
    assert names("what is the time")[0] == "get_time"
    assert names("files") == ["read_file", "writeFile"]
    assert names("issue") == ["list_issues"]


def test_a_server_finds_its_own_tools_by_its_name() -> None:
    assert len(names("server:srv")) == 4


def test_what_shares_no_word_is_not_found_and_no_word_finds_all() -> None:
    assert names("quantum") == []
    assert names(" ?! ", 3) == ["read_file", "writeFile", "list_issues"]
    assert search("anything", "srv", [], 8) == []


@given(st.text(max_size=40), st.lists(st.builds(McpTool, name=st.text(min_size=1, max_size=20)), max_size=30))
def test_a_search_finds_each_tool_once_and_no_more_than_wanted(query: str, tools: list[McpTool]) -> None:
    found = search(query, "s", tools, 8)
    assert len(found) == len({id(tool) for tool in found}) <= 8
    assert {id(tool) for tool in found} <= {id(tool) for tool in tools}


@given(st.sampled_from(TOOLS))
def test_a_tool_is_found_by_its_own_name(tool: McpTool) -> None:
    assert names(tool.name)[0] == tool.name


# --- results -------------------------------------------------------------------------------------------------


def text(*said: str) -> dict[str, object]:
    return {"content": [{"type": "text", "text": each} for each in said]}


IMAGE = {"type": "image", "mimeType": "image/png", "data": base64.b64encode(b"12345").decode()}


def test_texts_are_joined_and_structure_counts_where_there_is_no_text() -> None:
    assert text_of_result(text("a", "b")) == "a\nb"
    assert text_of_result({**text("a"), "structuredContent": {"n": 1}}) == "a"
    assert text_of_result({"content": [], "structuredContent": {"n": 1}}) == {"n": 1}
    assert text_of_result({"structuredContent": [1]}) == [1]


def test_what_is_no_text_is_named() -> None:
    said = text_of_result(
        {
            "content": [
                {"type": "text", "text": "look:"},
                IMAGE,
                {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"},
                {"type": "resource_link", "uri": "file:///a", "name": "a"},
                {"type": "resource", "resource": {"uri": "file:///b", "text": "the text of b"}},
                {"type": "resource", "resource": {"uri": "file:///c", "blob": "AAAA", "mimeType": "x/y"}},
                {"type": "hologram"},
            ]
        }
    )
    assert said.splitlines() == [
        "look:",
        "[image image/png, 5 bytes]",
        "[audio audio/wav, 3 bytes]",
        "[resource file:///a, a]",
        "[resource file:///b]",
        "the text of b",
        "[resource file:///c, x/y, 3 bytes]",
        "[hologram without a name]",
    ]


@pytest.mark.parametrize("result", [{}, {"content": []}, {"content": [None, 3]}, {"isError": False}])
def test_an_answer_without_anything_says_so(result: dict[str, object]) -> None:
    assert has_message(text_of_result(result), "work.mcp.tools.direct")


def test_an_answer_of_another_shape_is_told_as_it_is() -> None:
    assert text_of_result({"toolResult": 3, "_meta": {}}) == {"toolResult": 3}
    assert text_of_result({"content": "x"}) == {"content": "x"}


def test_an_error_is_the_text_of_the_answer() -> None:
    assert error_of(text("fine")) is None
    assert error_of({**text("no such file"), "isError": True}) == "no such file"
    assert has_message(error_of({"content": [], "isError": True}), "work.mcp.tools.direct.error_of")


def test_an_answer_as_it_came_is_told_without_its_bytes() -> None:
    raw = {
        "_meta": {"x": 1},
        "resultType": "complete",
        "content": [IMAGE, {"type": "resource", "resource": {"uri": "u", "blob": "A" * 4000}}, 7],
        "structuredContent": {"n": 1},
    }
    assert without_bytes(raw) == {
        "content": [
            {"type": "image", "mimeType": "image/png", "data": "[5 bytes left out]"},
            {"type": "resource", "resource": {"uri": "u", "blob": "[3000 bytes left out]"}},
            7,
        ],
        "structuredContent": {"n": 1},
    }
