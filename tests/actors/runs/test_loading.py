"""Targets are loaded once, in a thread, until one of the files that were looked at changes."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.agent_runs import AgentRunner

from callboard.actors.io import file_fingerprints
from callboard.actors.runs import target as targets
from callboard.actors.runs.loading import NO_HOOKS
from callboard.protocol.errors import InvalidFile
from callboard.protocol.requests import RunRequest

GRAPH = """
initial_state: {poem: ""}
global_tools: [mine, fs_cat]
mcp_servers: [clock]
start: s
nodes:
  s: {type: script, script: a.sh, next: r}
  r: {type: rag, documents: [notes.md, gone.md], query: "{{initial_prompt}}", next: k}
  k: {type: agent, agent: kid, prompt: "{{nowhere}}", next: e}
  e: {type: end, output: "{{poem}}"}
"""

_opened: list[str] | None = None


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if _opened is not None and event in ("open", "os.listdir", "os.scandir") and arguments:
        _opened.append(os.fspath(arguments[0]) if isinstance(arguments[0], str | os.PathLike) else "")


sys.addaudithook(_hear)


@contextmanager
def consulted(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[Path]]:
    """The paths that the block opens, lists or asks the state of, outside of Python's own directories."""
    global _opened
    found: set[Path] = set()
    opened: list[str] = []
    stat = os.stat

    def heard(path: object, *args: object, **options: object) -> os.stat_result:
        if isinstance(path, str | os.PathLike):
            opened.append(os.fspath(path))
        return stat(path, *args, **options)  # type: ignore[arg-type, call-overload, no-any-return]  # as it is given

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", heard)
        _opened = opened
        try:
            yield found
        finally:
            _opened = None
            found.update(map(Path, opened))


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were written a moment ago count as settled."""
    monkeypatch.setattr(file_fingerprints, "SETTLED", -1)


def agent_with_all_files(agent_runner: AgentRunner) -> Path:
    home = agent_runner.agent(GRAPH, a="echo {}")
    (home / "notes.md").write_text("x")
    (home / "tools.sh").write_text("# @cmd Says hello\nhello() { echo hello; }\n")
    agent_runner.plain("", name="kid")
    tools = agent_runner.config_dir / "functions" / "tools"
    tools.mkdir(parents=True)
    (tools / "mine.sh").write_text("# @describe Mine\nmain() { echo; }\n")
    (agent_runner.config_dir / "mcp.json").write_text('{"mcpServers": {"clock": {"command": "true"}}}')
    return home


async def test_all_that_a_reading_consults_is_remembered(
    agent_runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_with_all_files(agent_runner)
    request = RunRequest(target="g")
    agent_runner.root.loader._read(request, ())  # what is imported, and files of tools that are kept by themselves
    with file_fingerprints.recorded() as looked, consulted(monkeypatch) as found:
        agent_runner.root.loader._read(request, ())
    here = {path for path in found if path.is_relative_to(agent_runner.config_dir)}
    assert {path.name for path in here} >= {"graph.yaml", "a.sh", "notes.md", "gone.md", "kid", "mcp.json"}
    assert here - looked.keys() == set()


CHANGES: dict[str, Callable[[Path, Path], object]] = {
    "its own file": lambda home, base: (home / "graph.yaml").write_text((home / "graph.yaml").read_text() + "\n"),
    "a script": lambda home, base: (home / "a.sh").write_text("echo '{\"poem\": 1}'\n"),
    "its tools": lambda home, base: (home / "tools.sh").write_text("# @cmd Bye\nbye() { echo bye; }\n"),
    "a document that was missing": lambda home, base: (home / "gone.md").write_text("here"),
    "another agent": lambda home, base: (base / "agents" / "kid" / "config.yaml").unlink(),
    "a global tool": lambda home, base: (base / "functions" / "tools" / "mine.sh").unlink(),
    "the servers": lambda home, base: (base / "mcp.json").write_text("{}"),
}


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize("what", CHANGES)
async def test_a_target_is_read_once_until_something_it_depends_on_changes(
    agent_runner: AgentRunner, what: str
) -> None:
    home = agent_with_all_files(agent_runner)
    request = RunRequest(target="g")
    first = await agent_runner.root.loader.load(request, NO_HOOKS)
    assert await agent_runner.root.loader.load(request, NO_HOOKS) is first
    CHANGES[what](home, agent_runner.config_dir)
    try:
        again = await agent_runner.root.loader.load(request, NO_HOOKS)
    except InvalidFile:
        return
    assert again is not first


@pytest.mark.usefixtures("old")
async def test_other_ways_to_read_it_are_kept_apart_and_errors_are_not_kept(agent_runner: AgentRunner) -> None:
    home = agent_with_all_files(agent_runner)
    loader = agent_runner.root.loader
    first = await loader.load(RunRequest(target="g"), NO_HOOKS)
    assert await loader.load(RunRequest(target="g", compat="loki"), NO_HOOKS) is not first
    with pytest.raises(InvalidFile):
        await loader.load(RunRequest(target="g", strict=True), NO_HOOKS)
    text = (home / "graph.yaml").read_text()
    (home / "graph.yaml").write_text("nodes: {")
    with pytest.raises(InvalidFile):
        await loader.load(RunRequest(target="g"), NO_HOOKS)
    (home / "graph.yaml").write_text(text)
    assert (await loader.load(RunRequest(target="g"), NO_HOOKS)).name == first.name


async def test_a_change_within_the_grain_of_the_clock_is_seen(agent_runner: AgentRunner) -> None:
    home = agent_runner.agent("start: e\nnodes:\n  e: {type: end, output: a}")
    text = (home / "graph.yaml").read_text()
    for word in "abcab":
        (home / "graph.yaml").write_text(text.replace("output: a", f"output: {word}"))
        assert (await agent_runner.run()).output == word


@pytest.mark.usefixtures("old")
async def test_targets_are_read_in_a_thread_and_a_run_reads_its_own_once(
    agent_runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_runner.agent("start: e\nnodes:\n  e: {type: end}")
    threads: list[int] = []
    check = targets._check

    def heard(*args: object, **options: object) -> object:
        threads.append(threading.get_ident())
        return check(*args, **options)  # type: ignore[arg-type]  # as they are given

    monkeypatch.setattr(targets, "_check", heard)
    for _ in range(3):
        assert (await agent_runner.run()).status == "done"
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()
