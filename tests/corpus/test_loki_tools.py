"""Every tool that Loki and its successor ship, called as a model calls it: by a run, as a real process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from corpus.loki_directory import FAMILIES, failed, installed, lacking, project
from corpus.strangers import WORKS, Family, Seen, attempts, cannot, check, corpus, needs
from support.fake_models import FakeModels, Reply

import callboard
from callboard.actors.work.tools.declare.read import read_tools

ENDINGS = (".sh", ".py", ".ts")


class Call(msgspec.Struct, frozen=True):
    """How a tool is tried.

    Attributes:
        arguments: what the model says; those that the tool does not have are left out.
        result: is in what the model is told.
        file, holds: this file of the project has this text afterwards; None: it is not there any more.
    """

    arguments: dict[str, Any] = {}
    result: str = ""
    file: str = ""
    holds: str | None = None


PATCH = "--- a/notes.md\n+++ b/notes.md\n@@ -1,4 +1,4 @@\n # Cake\n \n-flour\n+butter\n eggs\n"
LOOSE = "@@ ... @@\n # Cake\n \n-flour\n+butter\n eggs\n"
PATCHED = "# Cake\n\nbutter\neggs"
EVERYTHING: dict[str, Any] = {
    "string": "it's",
    "string_enum": "foo",
    "boolean": True,
    "integer": 3,
    "number": 1.5,
    "array": ["a b", "c"],
    "array_bracket": ["a"],
    "array_generic": ["a"],
}

CALLS: dict[str, Call] = {
    "get_diff": Call({}, "two wheels"),
    "get_changed_files": Call({}, "more.md"),
    "get_project_info": Call({}, "Type: sample"),
    "get_project_structure": Call({}, "notes.md"),
    "get_structure": Call({}, "notes.md"),
    "verify_build": Call({}, "checked"),
    "run_build": Call({}, "built"),
    "run_tests": Call({}, "tested"),
    "classify_source": Call({"url": "https://www.example.edu/x"}, "HIGH"),
    "search_files": Call({"pattern": "*.md"}, "notes.md"),
    "search_content": Call({"pattern": "flour"}, "notes.md"),
    "search_code": Call({"pattern": "flour", "file_type": "md"}, "notes.md"),
    "read_file": Call({"path": "notes.md"}, "flour"),
    "find_similar": Call({"path": "notes.md"}, "more.md"),
    "analyze_with_command": Call({"command": "git log --oneline"}, "first"),
    "list_directory": Call({}, "notes.md"),
    "read_query": Call({"query": "select 1"}),
    "write_query": Call({"query": "create table t (n int)"}),
    "describe_table": Call({"table_name": "t"}),
    "demo_py": Call(EVERYTHING, "it's"),
    "demo_sh": Call(EVERYTHING, "it's"),
    "demo_ts": Call(EVERYTHING, "it's"),
    "execute_command": Call({"command": "printf '%s-%s' one \"two\""}, "one-two"),
    "execute_py_code": Call({"code": "n = 6\nn * 7"}, "42"),
    "execute_sql_code": Call({"code": "select 6 * 7"}),
    "fs_cat": Call({"path": "notes.md"}, "flour"),
    "fs_glob": Call({"pattern": "*.md"}, "notes.md"),
    "fs_grep": Call({"pattern": "flour"}, "notes.md"),
    "fs_ls": Call({"path": "."}, "notes.md"),
    "fs_mkdir": Call({"path": "new/dir"}, "new/dir"),
    "fs_patch": Call({"path": "notes.md", "contents": PATCH, "content": PATCH}, "notes.md", "notes.md", PATCHED),
    "fs_read": Call({"path": "notes.md"}, "flour"),
    "fs_rm": Call({"path": "notes.md"}, "notes.md", "notes.md"),
    "fs_write": Call({"path": "a/b.txt", "contents": "it's\n", "content": "it's\n"}, "b.txt", "a/b.txt", "it's"),
    "get_current_time": Call({}, ":"),
    "git_command": Call({"command": "git log --oneline"}, "first"),
    "ast_grep": Call({"pattern": "$A", "lang": "python"}),
    "search_wolframalpha": Call({"query": "x"}),
    "send_mail": Call({"recipient": "a@example.org", "subject": "x", "body": "x"}),
    "send_twilio": Call({"to_number": "1", "message": "x"}),
    "web_search_perplexity": Call({"query": "x"}),
    "web_search_tavily": Call({"query": "x"}),
    "web_search_loki": Call({"query": "x"}),
    "web_search_coyote": Call({"query": "x"}),
}

ONLINE = (
    "get_ipinfo",
    "fetch_url_via_curl",
    "fetch_url_via_jina",
    "get_current_weather",
    "search_arxiv",
    "search_wikipedia",
)
"""What these do is done by the network alone; they are offered to a model, and not called."""


def tools(directory: Path) -> Iterator[tuple[str, str]]:
    assets = directory / "assets"
    for file in (*assets.glob("agents/*/tools.*"), *assets.glob("functions/tools/*")):
        if file.suffix in ENDINGS:
            for declaration in read_tools(file, agent="agents" in file.parts).declarations:
                yield str(file.relative_to(directory)), f"call {declaration.name}"


CASES = [(family, file, what) for family in FAMILIES for file, what in attempts(family, tools, what="call")]


@pytest.mark.parametrize(("family", "file", "what"), CASES)
async def test_a_shipped_tool_does_what_it_is_for(
    fake_model: FakeModels, tmp_path: Path, family: Family, file: str, what: str
) -> None:
    directory = corpus(family)
    config = installed(directory / "assets", fake_model.config_dir(tmp_path / "config"))
    name = what.partition(" ")[2]
    agent = Path(file).parts[2] if "agents" in Path(file).parts else _caller(config, Path(file))
    here = project(tmp_path / "project")
    seen = await _called(fake_model, config, here, agent, name, directory / file)
    check(family, file, what, seen)


def _caller(config: Path, tool: Path) -> str:
    """An agent that has this global tool. Of several files of one name the first by ending is the tool."""
    for other in (config / "functions" / "tools").glob(f"{tool.stem}.*"):
        if other.name != tool.name:
            other.unlink()
    home = config / "agents" / "caller"
    home.mkdir()
    (home / "config.yaml").write_text(json.dumps({"name": "caller", "global_tools": [tool.name]}))
    return "caller"


async def _called(models: FakeModels, config: Path, here: Path, agent: str, name: str, file: Path) -> Seen:
    """What comes of a run in which the model calls this tool."""
    online = name in ONLINE
    call = CALLS.get(name, Call())
    own = {d.name: d for d in read_tools(file, agent=agent != "caller").declarations}[name].parameters["properties"]
    arguments = {key: value for key, value in call.arguments.items() if key in own}
    if not online:
        models.script(Reply(calls=[(name, arguments)]))
    variables = {"username": "ada"} if agent == "demo" else {"dsn": "sqlite::memory:"} if agent == "sql" else {}
    # The agent of a graph is not a model that calls tools: its tools are lent to one that is.
    target = _lent(config, agent) if (config / "agents" / agent / "graph.yaml").exists() else agent
    async with callboard.Root(config_dir=config) as root:
        outcome = await callboard.run(target, "go", root=root, yes=True, cwd=here, variables=variables)
    if outcome.error is not None:
        return failed(str(outcome.error))
    if name not in models.requests[0].offered:
        return cannot("the model is not offered it")
    if online:
        return needs("the network")
    return _judged(models.requests[-1].results[-1], call, here)


def _lent(config: Path, agent: str) -> str:
    home = config / "agents" / agent
    (home / "graph.yaml").unlink()
    (home / "config.yaml").write_text(json.dumps({"name": agent}))
    return agent


def _judged(said: str, call: Call, here: Path) -> Seen:
    told = json.loads(said) if said.startswith("{") else {}
    if "tool_call_error" in told:
        return failed(f"{told['tool_call_error']}: {told.get('stderr', '')} {told.get('output', '')}")
    if absent := lacking(said) if "is not installed" not in said else needs("the program ast-grep"):
        return absent
    if call.result not in said:
        return cannot(f"{call.result!r} is not in its result: {said[:200]}")
    if call.file:
        file = here / call.file
        if (file.read_text().rstrip("\n") if file.exists() else None) != call.holds:
            return cannot(f"{call.file} is not as it should be: {file.read_text()[:200] if file.exists() else 'gone'}")
    return WORKS


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_shipped_patch_tool_takes_hunks_without_numbers(
    fake_model: FakeModels, tmp_path: Path, family: Family
) -> None:
    config = installed(corpus(family) / "assets", fake_model.config_dir(tmp_path / "config"))
    agent = _caller(config, Path("fs_patch.sh"))
    here = project(tmp_path / "project")
    both = {"path": "notes.md", "contents": LOOSE, "content": LOOSE}
    own = read_tools(config / "functions/tools/fs_patch.sh", agent=False).declarations[0].parameters["properties"]
    fake_model.script(Reply(calls=[("fs_patch", {key: value for key, value in both.items() if key in own})]))
    async with callboard.Root(config_dir=config) as root:
        await callboard.run(agent, "go", root=root, yes=True, cwd=here)
    assert (here / "notes.md").read_text().rstrip("\n") == PATCHED, fake_model.requests[-1].results
