"""Answers `always`: kept by directory, bound to what was allowed, and the user's own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import msgspec
import pytest
from support.fake_models import Reply
from support.messages import has_message
from support.repository import Repository
from support.scripted_server import scripted_server

import callboard
from callboard.actors.work.tools.permissions import StoredAnswers
from callboard.protocol.kernel.questions import Question

TOOL = """#!/usr/bin/env bash
# @cmd Sends something.
send_it() {{
  echo {said} >> "$LLM_OUTPUT"
}}
"""

SERVER = scripted_server("return 'done'", do={})


class Asked:
    """A person who answers everything alike."""

    name = "person"

    def __init__(self, root: callboard.Root, answer: str) -> None:
        self.questions: list[Question] = []
        self._root = root
        self._answer = answer
        self.then: str | None = None
        """The answer to all questions but the first one."""

    def asked(self, question: Question) -> None:
        self.questions.append(question)
        answer = self._answer if self.then is None or len(self.questions) == 1 else self.then
        self._root.questions.answer(question.id, answer, by=self.name)

    def closed(self, question_id: str, by: str) -> None:
        """Nothing is shown."""


async def asked(project: Repository, answer: str, *replies: Reply) -> int:
    """How often a person was asked in a run with these calls."""
    async with callboard.Root(config_dir=project.config) as root:
        person = Asked(root, answer)
        with root.questions.attach(person):
            outcome = await project.run(*replies, "over", root=root)
    assert outcome.status == "done", outcome.error
    return len(person.questions)


def command(text: str) -> Reply:
    return Reply(calls=[("execute_command", {"command": text})])


def write(path: str) -> Reply:
    return Reply(calls=[("fs_write", {"path": path, "contents": "x"})])


@pytest.fixture
def project(repository: Repository) -> Repository:
    repository.agent("global_tools: [fs_write, execute_command]")
    return repository


async def test_a_command_is_allowed_as_it_is_in_this_directory(
    project: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await asked(project, "always", command("echo a")) == 1
    assert await asked(project, "no", command("echo a")) == 0
    assert await asked(project, "no", command("echo b")) == 1
    elsewhere = project.home / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert await asked(project, "no", command("echo a")) == 1


@pytest.mark.parametrize(
    ("first", "pattern", "asked_about", "not_asked_about"),
    [
        (
            command("echo a b"),
            "echo a *",
            ["echo b", "echo a c; id", "echo a $(id)"],
            ["echo a c", "echo a 1 && echo a 2"],
        ),
        (command("echo a"), "echo a", ["echo a b"], ["echo a"]),
        (command("echo *"), "echo *", ["echo b"], ["echo *"]),  # as it was asked: no pattern
        (write("src/a"), "src/*", ["b"], ["src/c"]),
        (write("b"), "*", [], ["src/c"]),
    ],
)
@pytest.mark.sample(3)
async def test_a_pattern_is_kept_in_the_place_of_the_call(
    project: Repository, first: Reply, pattern: str, asked_about: list[str], not_asked_about: list[str]
) -> None:
    call = command if "command" in str(first.calls) else write
    (project.root / "src").mkdir(exist_ok=True)
    assert await asked(project, f"always: {pattern}", first) == 1
    assert await asked(project, "no", *map(call, not_asked_about)) == 0
    assert await asked(project, "no", *map(call, asked_about)) == len(asked_about)


async def test_a_pattern_that_does_not_mean_the_call_allows_nothing_and_is_asked_for_again(project: Repository) -> None:
    async with callboard.Root(config_dir=project.config) as root:
        person = Asked(root, "always: ask first")
        person.then = "no"
        with root.questions.attach(person):
            await project.run(command("echo a"), "over", root=root)
    first, second = person.questions
    assert (first.pattern, first.problem) == ("echo a", None)
    assert second.problem
    assert await asked(project, "no", command("echo a")) == 1


async def test_another_tool_is_allowed_with_whatever_arguments(project: Repository) -> None:
    assert await asked(project, "always", write("a"), write("b")) == 1
    assert await asked(project, "no", write("c")) == 0
    assert (project.root / "c").exists()


async def test_run_is_for_the_run_alone(project: Repository) -> None:
    assert await asked(project, "run", command("echo a"), command("echo b")) == 1
    assert await asked(project, "no", command("echo a")) == 1


async def test_no_answer_changes_what_is_denied(project: Repository) -> None:
    assert await asked(project, "always", command("echo a")) == 1
    project.settings(permissions={"execute_command": {"deny": "echo *"}})
    assert await asked(project, "yes", command("echo a")) == 0
    assert has_message(project.told, "work.tools.permissions.Permissions.admit")


async def test_a_tool_file_that_has_changed_is_asked_about_again(project: Repository) -> None:
    project.agent("permissions: {send_it: ask}")
    tools = project.config / "agents/a/tools.sh"
    tools.write_text(TOOL.format(said="one"))
    call = Reply(calls=[("send_it", {})])
    assert await asked(project, "always", call) == 1
    assert await asked(project, "no", call) == 0
    tools.write_text(TOOL.format(said="two"))
    assert await asked(project, "no", call) == 1


async def test_26_a_server_whose_command_has_changed_is_asked_about_again(project: Repository) -> None:
    project.agent("mcp_servers: [s]")
    project.settings(mcp_tools="direct")
    script = project.home / "server.py"
    script.write_text(SERVER)
    functions = project.config / "functions"
    functions.mkdir()

    def configured(*more: str) -> None:
        entry = {"command": sys.executable, "args": [str(script), *more], "trust": "none"}
        (functions / "mcp.json").write_text(json.dumps({"mcpServers": {"s": entry}}))

    call = Reply(calls=[("s__do", {})])
    configured()
    assert await asked(project, "always", call) == 1
    assert await asked(project, "no", call) == 0
    configured("--evil")
    assert await asked(project, "no", call) == 1


async def test_callers_of_a_server_have_none_of_it_and_add_nothing(project: Repository) -> None:
    from callboard.actors.runs.begin import perform
    from callboard.actors.runs.loading import RunCallbacks
    from callboard.protocol.requests import RunRequest

    assert await asked(project, "always", command("echo a")) == 1
    async with callboard.Root(config_dir=project.config) as root:
        person = Asked(root, "always")
        with root.questions.attach(person):
            project.models.script(command("echo a"), command("echo b"), Reply(text="over"))
            await perform(RunRequest(target="a", prompt="go"), RunCallbacks(owner="alice"), root)
    assert [question.options for question in person.questions] == [("yes", "always", "no")]
    assert [each.subject for each in StoredAnswers(project.root, os.environ).all()] == ["echo a"]


async def test_they_are_listed_and_taken_back(project: Repository) -> None:
    kept = StoredAnswers(project.root, os.environ)
    assert await asked(project, "always", command("echo a"), command("echo b"), write("c")) == 3
    assert [(each.tool, each.subject) for each in kept.all()] == [
        ("execute_command", "echo a"),
        ("execute_command", "echo b"),
        ("fs_write", ""),
    ]
    assert kept.forget("execute_command") == 2
    assert await asked(project, "no", command("echo a"), write("d")) == 1
    assert kept.forget() == 1
    assert kept.all() == ()


def test_what_is_kept_is_the_users_alone_and_a_broken_file_allows_nothing(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    kept = StoredAnswers(tmp_path, environ)
    assert kept.all() == ()
    kept._write(())
    (file,) = (tmp_path / ".local/state/callboard/allowed").iterdir()
    assert file.stat().st_mode & 0o077 == 0
    file.write_bytes(msgspec.json.encode({"directory": "/", "allowed": [{"tool": "x", "sum": "y"}]}))
    assert kept.all() == ()
    file.write_text("{")
    assert kept.all() == ()
