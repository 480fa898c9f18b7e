"""What docs/agents.md and docs/tools.md say is so: every key, every tool, and the schemas of their examples."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.fake_models import FakeModels, Reply

from callboard.actors.work.agent.history import KEEP_LAST
from callboard.actors.work.agent.todo import todo_tools
from callboard.actors.work.agent.tool_families import user_tools
from callboard.actors.work.context import MAX_DEPTH
from callboard.actors.work.library import AGENTS
from callboard.actors.work.tools.builtin.table import builtin_tools
from callboard.actors.work.tools.calls import RESULT_LIMIT
from callboard.actors.work.tools.declare.read import read_tools
from callboard.actors.work.tools.tool import TIMEOUT
from callboard.protocol.agent import AgentFile, read_agent
from callboard.protocol.permissions import PermissionRule
from callboard.protocol.settings import read_settings

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "agents.md").read_text(encoding="utf-8")
TOOLS = (DOCS / "tools.md").read_text(encoding="utf-8")
BUILTIN = builtin_tools(os.environ)
EXAMPLE = re.compile(
    r"^```(bash|python|typescript)\n(.*?)^```\n\ngives the model\n\n^```json\n(.*?)^```", re.DOTALL | re.MULTILINE
)
EXAMPLES = EXAMPLE.findall(TOOLS)
ENDINGS = {"bash": ".sh", "python": ".py", "typescript": ".ts"}


def test_every_key_of_an_agent_is_in_the_table() -> None:
    rows = "\n".join(line.split(" | ")[0] for line in PAGE.splitlines() if line.startswith("| "))
    assert [key for key in AgentFile.__struct_fields__ if f"`{key}`" not in rows] == []


def test_the_table_tells_the_defaults_as_they_are() -> None:
    defaults = {field.name: field.default for field in msgspec.structs.fields(AgentFile)}
    told = dict(re.findall(r"^\| `(\w+)` \| `?(false|true|\d+)`? \|", PAGE, re.MULTILINE))
    assert {key: json.loads(value) for key, value in told.items()} == {
        **{key: value for key, value in defaults.items() if isinstance(value, bool | int)},
        "tool_timeout": TIMEOUT,
        "max_tool_result_chars": RESULT_LIMIT,
        "compression_keep_last": KEEP_LAST,
        "max_agent_depth": MAX_DEPTH,
    }


def test_the_example_of_an_agent_is_free_of_problems() -> None:
    (block,) = re.findall(r"^```yaml\n(name:.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert read_agent(block, "docs/agents.md", strict=True)[1] == []


def test_every_tool_of_the_families_is_named() -> None:
    offered = [*todo_tools(), *user_tools(timeout=None)]
    source = "".join(path.read_text() for path in (DOCS.parent / "actors" / "work" / "agent").glob("*.py"))
    names = {tool.name for tool in offered} | set(re.findall(r'"(agent__\w+)"', source))
    assert len(names) > 18
    assert [name for name in sorted(names) if f"`{name}" not in PAGE] == []


def test_every_built_in_agent_is_named() -> None:
    assert [path.name for path in AGENTS.iterdir() if path.is_dir() and f"| `{path.name}` |" not in PAGE] == []


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_every_built_in_tool_is_in_the_table_as_it_is(name: str) -> None:
    tool = BUILTIN[name]
    required = tool.spec.parameters["required"]
    takes = [f"`{key}`" if key in required else f"`[{key}]`" for key in tool.spec.parameters["properties"]]
    start = f"| `{name}` | {', '.join(takes)} | {tool.effect} |".replace("|  |", "| |")
    assert start in TOOLS


@pytest.mark.parametrize(("language", "text", "schema"), EXAMPLES, ids=[language for language, _, _ in EXAMPLES])
def test_the_examples_of_tool_files_have_the_schemas_shown(
    tmp_path: Path, language: str, text: str, schema: str
) -> None:
    if language == "typescript":
        pytest.importorskip("tree_sitter_typescript")
    file = tmp_path / f"tools{ENDINGS[language]}"
    file.write_text(text)
    read = read_tools(file, agent=True)
    assert read.problems == []
    (declared,) = read.declarations
    assert declared.description == "Forecasts the weather."
    assert declared.parameters == json.loads(schema)


def test_there_is_an_example_for_each_language() -> None:
    assert [language for language, _, _ in EXAMPLES] == list(ENDINGS)


def test_the_settings_shown_can_be_read() -> None:
    visible, permissions = re.findall(r"^```yaml\n(.*?)^```", TOOLS, re.DOTALL | re.MULTILINE)
    settings, problems = read_settings(visible + permissions, "docs/tools.md", {})
    assert problems == []
    assert isinstance(settings.permissions["execute_command"], PermissionRule)


async def test_the_program_with_a_python_function_runs(
    fake_model: FakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = re.findall(r"^```python\n(import callboard.*?)^```", TOOLS, re.DOTALL | re.MULTILINE)
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(fake_model.config_dir(tmp_path)))
    fake_model.script(Reply(calls=[("lookup", {"order": 7})]), "It was shipped.")
    names: dict[str, Any] = {}
    exec(program, names)
    await names["main"]()
    assert capsys.readouterr().out == "It was shipped. 1\n"
    assert json.loads(fake_model.requests[1].results[0]) == {"order": 7, "state": "shipped"}
