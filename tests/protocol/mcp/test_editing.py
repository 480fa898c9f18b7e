"""Changing single entries of mcp.json: what a person wrote around them stays, to the character."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.protocol.errors import InvalidFile
from callboard.protocol.mcp.config import read_mcp
from callboard.protocol.mcp.editing import EMPTY, entries_of, with_entry, without_entry

TIME = {"command": "uvx", "args": ["mcp-server-time"]}
DOCS = {"url": "https://example.org/mcp", "headers": {"Authorization": "Bearer ${DOCS_TOKEN}"}}

KEPT = """\
// my servers
{
    "mcpServers": {
        /* the clock: { } */
        "time": {"command": "uvx", "args": ["mcp-server-time"]},   // keep this one
        "git": {
            "command": "uvx",
            "args": ["a", "}"], // a brace in a text
        }
        // more to come
    },
    "x-mine": [1, 2,]
}
"""


def test_a_new_entry_goes_behind_the_last_and_nothing_else_changes() -> None:
    text = with_entry(KEPT, "docs", DOCS)
    added = [line for line in text.splitlines() if line not in KEPT.splitlines()]
    assert [line.strip() for line in added][:2] == ["},", '"docs": {']
    assert list(entries_of(text, "f")) == ["time", "git", "docs"]
    assert entries_of(text, "f")["docs"] == DOCS
    for remark in ("// my servers", "/* the clock: { } */", "// keep this one", "// a brace", "// more to come"):
        assert remark in text


def test_what_was_put_in_and_taken_out_again_leaves_the_entries_as_they_were() -> None:
    text = without_entry(with_entry(KEPT, "docs", DOCS), "docs")
    assert entries_of(text, "f") == entries_of(KEPT, "f")
    assert text.replace("\n        },", "\n        }") == KEPT.replace("\n        },", "\n        }")


def test_an_entry_is_replaced_in_its_place() -> None:
    text = with_entry(KEPT, "time", {"command": "other"})
    assert list(entries_of(text, "f")) == ["time", "git"]
    assert entries_of(text, "f")["time"] == {"command": "other"}
    assert "// keep this one" in text


def test_an_entry_that_is_not_there_is_not_taken_out() -> None:
    assert without_entry(KEPT, "nobody") == KEPT


@pytest.mark.parametrize(
    "text",
    [EMPTY, "{}", "{ }", '{"mcpServers":{}}', '{"$schema": "x"}', '{"servers": {}}', "\ufeff{}", "// mine\n{\n}\n"],
)
def test_a_file_without_servers_gets_its_first(text: str) -> None:
    new = with_entry(text, "time", TIME)
    assert entries_of(new, "f") == {"time": TIME}
    assert read_mcp(new, "f").names == ("time",)
    assert entries_of(without_entry(new, "time"), "f") == {}


def test_servers_at_the_top_level_stay_there() -> None:
    text = with_entry('{"time": {"command": "uvx"}}', "docs", DOCS)
    assert list(json.loads(text)) == ["time", "docs"]


def test_a_file_of_strict_json_stays_strict() -> None:
    text = json.dumps({"mcpServers": {"a": TIME, "b": DOCS}}, indent=4)
    text = with_entry(text, "c", TIME)
    assert list(json.loads(text)["mcpServers"]) == ["a", "b", "c"]
    for name in ("c", "a", "b"):
        text = without_entry(text, name)
        assert name not in json.loads(text)["mcpServers"]


@pytest.mark.parametrize("text", ["", "[1]", '{"mcpServers": []}', '{"mcpServers": {'])
def test_what_is_no_such_file_is_refused(text: str) -> None:
    with pytest.raises(InvalidFile):
        with_entry(text, "time", TIME)


_blank = st.sampled_from(["", " ", "\n", "\n  ", " // x, }\n", "/* { */", "\t"])
_name = st.text('abc"\\é{},', min_size=1, max_size=4)
_plain = st.none() | st.integers() | st.text('ab{}[],:/*"', max_size=5)
_value = st.recursive(_plain, lambda value: st.lists(value, max_size=3))


@given(st.dictionaries(_name, _value, max_size=4), st.data())
def test_whatever_stands_around_it_an_entry_comes_and_goes(entries: dict[str, object], data: st.DataObject) -> None:
    def blank() -> str:
        return data.draw(_blank)

    parts = [f"{blank()}{json.dumps(k)}{blank()}:{blank()}{json.dumps(v)}{blank()}" for k, v in entries.items()]
    tail = "," if parts and data.draw(st.booleans()) else ""
    text = f'{blank()}{{{blank()}"mcpServers":{blank()}{{{",".join(parts)}{tail}{blank()}}}{blank()}}}{blank()}'
    name = data.draw(st.sampled_from([*entries, "new"]))
    new = with_entry(text, name, TIME)
    assert entries_of(new, "f") == {**entries, name: TIME}
    assert entries_of(without_entry(new, name), "f") == {k: v for k, v in entries.items() if k != name}


FORMS = {
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "tabs": lambda text: text.replace("    ", "\t"),
    "two blanks": lambda text: text.replace("    ", "  "),
    "a mark of the byte order": lambda text: "\ufeff" + text,
    "no last end of a line": lambda text: text.rstrip("\n"),
    "blanks behind": lambda text: text.replace("},\n", "},  \n").replace("come\n", "come \n"),
    "all": lambda text: "\ufeff" + text.rstrip("\n").replace("    ", "\t").replace("\n", "\r\n"),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_not_ours_stays_byte_for_byte_in_every_form_and_ours_is_written_likewise(form: str) -> None:
    text = FORMS[form](KEPT)
    new = with_entry(text, "docs", DOCS)
    assert entries_of(new, "f") == {**entries_of(KEPT, "f"), "docs": DOCS}
    lines = new[new.rindex("\n", 0, new.index('"docs"')) + 1 :].splitlines()
    unit = {"tabs": "\t", "all": "\t", "two blanks": "  "}.get(form, "    ")
    assert lines[0].startswith(unit * 2 + '"docs"')
    assert lines[1].startswith(unit * 3 + '"url"')
    assert new.count("\r\n") == (new.count("\n") if "\r\n" in text else 0)
    assert (new.startswith("\ufeff"), new.endswith("\n")) == (text.startswith("\ufeff"), text.endswith("\n"))
    back = without_entry(new, "docs")
    assert [*_lines_but_commas(back)] == [*_lines_but_commas(text)]
    replaced = with_entry(text, "time", TIME)
    begins, ends = text.index('{"command"'), text.index("   // keep")
    assert (replaced[:begins], replaced[-len(text[ends:]) :]) == (text[:begins], text[ends:])


def _lines_but_commas(text: str) -> list[str]:
    return text.replace(",", "").splitlines(keepends=True)


@pytest.mark.parametrize(
    "members", ['"a": {"command": "1"}, "a": {"command": "2"}', '"b": {}, "a": {}, "b": {}, "a": {}']
)
def test_an_entry_that_stands_twice_is_gone_when_it_is_removed(members: str) -> None:
    """The last one counts, so removing that alone would bring the first one back."""
    text = without_entry(f'{{"mcpServers": {{{members}}}}}', "a")
    assert "a" not in entries_of(text, "f")
    json.loads(text)  # and no comma dangles
