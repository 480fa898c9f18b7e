"""The table: names, schemas, and that making it costs nothing."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import jsonschema
import pytest

from callboard.actors.work.tools.builtin.table import SPECS, builtin_tools

NAMES = [
    *("fs_cat", "fs_read", "fs_ls", "fs_glob", "fs_grep", "fs_write", "fs_edit", "fs_patch", "fs_mkdir"),
    "fs_rm",
    *("execute_command", "execute_py_code", "execute_sql_code", "fetch_url_via_curl", "get_current_time"),
    *("get_current_weather", "search_arxiv", "search_wikipedia", "web_search_loki"),
]


def test_every_promised_tool_is_there_under_lokis_name() -> None:
    tools = builtin_tools({})
    assert sorted(tools) == sorted(NAMES)
    assert all(tool.name == name and tool.origin == "builtin" for name, tool in tools.items())


@pytest.mark.parametrize("name", NAMES)
def test_each_schema_is_valid_and_its_code_exists(name: str) -> None:
    tool = builtin_tools({})[name]
    parameters = tool.spec.parameters
    jsonschema.Draft202012Validator.check_schema(parameters)
    assert set(parameters["required"]) <= set(parameters["properties"])
    assert all(parameter["description"] for parameter in parameters["properties"].values())
    assert tool.spec.description.endswith(".")
    assert not tool.subject or tool.subject in parameters["properties"]
    module = import_module(f"callboard.actors.work.tools.builtin.{SPECS[name].module}")
    assert callable(getattr(module, name))


@pytest.mark.parametrize(
    ("name", "effect", "subject", "required"),
    [
        ("fs_read", "read", "path", ["path"]),
        ("fs_write", "write", "path", ["path", "contents"]),
        ("fs_edit", "write", "path", ["path", "edits"]),
        ("fs_patch", "write", "path", ["path", "contents"]),
        ("fs_rm", "write", "path", ["path"]),
        ("execute_command", "execute", "command", ["command"]),
        ("execute_py_code", "execute", "code", ["code"]),
        ("fetch_url_via_curl", "read", "url", ["url"]),
        ("get_current_time", "none", "", []),
    ],
)
def test_each_says_what_it_does_to_the_world(name: str, effect: str, subject: str, required: list[str]) -> None:
    tool = builtin_tools({})[name]
    assert (tool.effect, tool.subject, tool.spec.parameters["required"]) == (effect, subject, required)
    assert tool.shell == (name == "execute_command")


def test_making_the_table_imports_nothing_heavy() -> None:
    code = (
        "import sys; from callboard.actors.work.tools.builtin.table import builtin_tools; builtin_tools({});"
        "print([name for name in ('httpx', 'html.parser', 'sqlite3', 'xml.etree') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["fs_write", "fs_patch"])
def test_the_successors_name_of_a_parameter_is_known_and_not_offered(name: str) -> None:
    tool = builtin_tools({})[name]
    assert tool.synonyms == {"content": "contents"}
    assert set(tool.spec.parameters["properties"]) == {"path", "contents"}
