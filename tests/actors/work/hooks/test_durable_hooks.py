"""Runs with hooks, skills and instructions that are kept, replayed and recorded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio
from support.fake_models import Reply
from support.repository import Repository

import callboard
from callboard.actors.io.directories import journal_dir
from callboard.actors.runs.rerun.fork import stored_rows
from callboard.actors.runs.rerun.replay import replay
from callboard.protocol.errors import NotFound
from callboard.protocol.outcome import Outcome


def given(project: Repository) -> None:
    """Everything that a directory has to say, and what counts how often each hook was asked."""
    project.write("AGENTS.md", "Use tabs.")
    project.write("sub/AGENTS.md", "Here: spaces.")
    project.write("sub/file", "contents")
    project.skill("brewing", text="Boil it.")
    stop = 'echo stop >> asked; [ -e ../done ] || { touch ../done; echo "Not yet." >&2; exit 2; }'
    hooks = {
        "UserPromptSubmit": [{"hooks": [{"command": "echo prompt >> asked; echo 'It is late.'"}]}],
        "PreToolUse": [{"hooks": [{"command": "echo call >> asked"}]}],
        "PostToolUse": [{"matcher": "Read", "hooks": [{"command": "echo 'Nice file.' >&2; exit 2"}]}],
        "Stop": [{"hooks": [{"command": stop}]}],
    }
    project.write(".claude/settings.json", json.dumps({"hooks": hooks}))
    project.agent("global_tools: [fs_cat]")
    project.trust()


REPLIES = (
    Reply(calls=[("skill", {"name": "brewing"})]),
    Reply(calls=[("fs_cat", {"path": "sub/file"})]),
    "I am done.",
    "Now I am.",
)


async def play(project: Repository, **options: object) -> Outcome:
    return await project.run(*REPLIES, yes=True, **options)


async def test_a_replay_is_the_same_and_asks_no_hook(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(repository.home / "state"))
    given(repository)
    outcome = await play(repository, durable=True, id="run-1")
    assert outcome.status == "done", outcome.error
    asked = (repository.root / "asked").read_text()
    assert asked.split() == ["prompt", "call", "call", "stop", "stop"]
    assert "Nice file." in str(repository.models.requests[2].results[-1])
    assert "Here: spaces." in str(repository.models.requests[2].results[-1])
    replayed = await trio.to_thread.run_sync(partial(replay, "run-1", config_dir=repository.config))
    assert replayed.differences == (), list(replayed.differences)
    assert json.dumps(replayed.outcome.to_wire()) == json.dumps(outcome.to_wire())
    assert (repository.root / "asked").read_text() == asked


async def test_a_cassette_has_what_the_directory_said(repository: Repository, tmp_path: Path) -> None:
    given(repository)
    cassette = tmp_path / "tape.jsonl"
    outcome = await play(repository, record=cassette)
    requests = len(repository.models.requests)
    asked = (repository.root / "asked").read_text()
    again = await callboard.run("a", "go", config_dir=repository.config, yes=True, replay=cassette)
    assert again.error is None
    assert again.output == outcome.output
    assert len(repository.models.requests) == requests
    assert (repository.root / "asked").read_text() == asked


def _rows() -> list[object]:
    """The rows of the run that are on the disk."""
    with suppress(NotFound):
        return list(stored_rows(journal_dir(os.environ), "run-1")[0])
    return []


async def test_a_run_that_was_killed_goes_on_and_asks_the_hooks_of_its_prompt_once(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(repository.home / "state"))
    given(repository)
    repository.models.script(*REPLIES[:2], Reply(text="", delay=60))
    code = "import callboard, trio, functools; trio.run(functools.partial(callboard.run, 'a', 'go', id='run-1', "
    code += f"durable=True, yes=True, config_dir={str(repository.config)!r}))"
    with subprocess.Popen([sys.executable, "-c", code], cwd=repository.root, env=os.environ) as process:
        with trio.fail_after(60):
            await repository.models.arrived(3)
            # What a hook has answered is asked again if it is not on the disk yet, and nothing here waits for that.
            while "hook UserPromptSubmit" not in repr(_rows()):
                await trio.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    repository.models.script(*REPLIES[2:])
    outcome = await callboard.resume("run-1", config_dir=repository.config)
    assert outcome.status == "done", outcome.error
    assert outcome.output.endswith("Now I am.")
    asked = (repository.root / "asked").read_text().split()
    assert [asked.count(each) for each in ("prompt", "stop")] == [1, 2]
    assert asked.count("call") in (2, 3)  # that of a call whose end was not on the disk is asked again, as the call is
