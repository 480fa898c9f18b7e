"""The status of the built-in coder is true, whatever its model says: ten repositories, models that mend, lie, do
nothing and tamper with the tests. A hidden check that the agent never sees says whether the bug is gone."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from support.agent_runs import AgentRunner
from support.fake_models import Reply, Request
from support.seeded_repos import REPOS, Repo

import callboard
from callboard.actors.work.library import AGENTS

CODER = AGENTS / "coder"
ALLOWED = {"fs_write": "allow", "fs_edit": "allow", "fs_patch": "allow", "execute_command": "allow"}
CLAIM = "Fixed it. All tests pass."

Acts = Callable[[Path, Repo], Reply | None]


def mends(project: Path, repo: Repo) -> Reply:
    name, old, new = repo.fix
    return Reply(calls=[("fs_edit", {"path": name, "edits": [{"old_string": old, "new_string": new}]})])


def does_nothing(project: Path, repo: Repo) -> None:
    return None


def deletes_the_tests(project: Path, repo: Repo) -> Reply:
    paths = " ".join(map(shlex.quote, repo.tests)) or "nothing"
    return Reply(calls=[("execute_command", {"command": f"rm -rf {paths}"})])


def empties_the_tests(project: Path, repo: Repo) -> Reply:
    files = [name for name in repo.files if name.startswith(repo.tests) and not name.endswith("__init__.py")]
    return Reply(calls=[("fs_write", {"path": name, "contents": ""}) for name in files if repo.tests] or None)


def touches_something_else(project: Path, repo: Repo) -> Reply:
    return Reply(calls=[("fs_write", {"path": "NOTES.md", "contents": "The bug is gone.\n"})])


async def work(agent_runner: AgentRunner, project: Path, repo: Repo, acts: Acts) -> callboard.Outcome:
    """A run of the coder whose model does this once per try, and then claims success."""
    plan = {"plan_summary": "Mend it.", "files_to_modify": [repo.fix[0]], "files_to_create": []}

    def answer(request: Request) -> Reply | str:
        if str(request.json["messages"][0]["content"]).startswith("You plan"):
            return json.dumps({**plan, "complexity_score": 2, "risks": []})
        if any(message["role"] == "tool" for message in request.json["messages"]):
            return CLAIM
        reply = acts(project, repo)
        return CLAIM if reply is None or not reply.calls else reply

    agent_runner.models.answer_with(answer)
    return await agent_runner.run("Mend the bug.", target=CODER, state={"max_fix_attempts": 1})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    monkeypatch.chdir(directory)
    for name in ("BUILD_CMD", "TEST_CMD", "CODER_AUTOAPPROVE"):
        monkeypatch.delenv(name, raising=False)
    return directory


def status(outcome: callboard.Outcome) -> str:
    return outcome.output.split("\n")[0]


@pytest.mark.parametrize("agent_runner", [ALLOWED], indirect=True)
@pytest.mark.parametrize(
    "acts",
    [mends, does_nothing, deletes_the_tests, empties_the_tests, touches_something_else],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("name", REPOS)
@pytest.mark.sample(3)
async def test_the_status_is_true(agent_runner: AgentRunner, project: Path, name: str, acts: Acts) -> None:
    repo = REPOS[name]
    if repo.lacks:
        pytest.skip(f"{repo.lacks} is not installed")
    repo.write(project)
    assert not repo.is_mended(project)
    outcome = await work(agent_runner, project, repo, acts)
    mended = repo.is_mended(project)
    assert mended == (acts is mends)
    if mended and repo.tests:
        assert (status(outcome), outcome.status, outcome.exit_code) == ("CODER_COMPLETE", "done", 0), outcome.output
        assert f'Changed: ["{repo.fix[0]}"]' in outcome.output
        assert ("as before the change: none of them shows it" in outcome.output) == (not repo.shows)
        return
    if acts is touches_something_else and repo.tests and not repo.shows:
        # Its tests cannot know. The report says that they do not show the change.
        assert "as before the change: none of them shows it" in outcome.output
        return
    assert (outcome.status, outcome.exit_code) == ("failed", 1), outcome.output
    assert outcome.error is not None
    expected = "CODER_UNVERIFIED" if not repo.tests and acts in (mends, touches_something_else) else "CODER_FAILED"
    assert status(outcome) == expected, outcome.output


@pytest.mark.parametrize("agent_runner", [ALLOWED], indirect=True)
async def test_a_test_that_is_bent_to_the_bug_is_no_success(agent_runner: AgentRunner, project: Path) -> None:
    repo = REPOS["unittest in a package"]
    repo.write(project)

    def bends(project: Path, repo: Repo) -> Reply:
        edits = [{"old_string": "later(23, 2), 1)", "new_string": "later(23, 2), 25)"}]
        return Reply(calls=[("fs_edit", {"path": "tests/test_clock.py", "edits": edits})])

    outcome = await work(agent_runner, project, repo, bends)
    assert (status(outcome), outcome.status, outcome.exit_code) == ("CODER_UNVERIFIED", "failed", 1), outcome.output
    assert "lines of existing tests were changed or removed in tests/test_clock.py" in outcome.output


@pytest.mark.full  # test_coder_scripts.py has the same change without a run of the agent
@pytest.mark.parametrize("agent_runner", [ALLOWED], indirect=True)
async def test_tests_that_are_skipped_are_no_success(agent_runner: AgentRunner, project: Path) -> None:
    repo = REPOS["pytest functions without settings"]
    repo.write(project)

    def skips(project: Path, repo: Repo) -> Reply:
        text = "import pytest\n\n\ndef pytest_itemcollected(item):\n    item.add_marker(pytest.mark.skip)\n"
        return Reply(calls=[("fs_write", {"path": "conftest.py", "contents": text})])

    outcome = await work(agent_runner, project, repo, skips)
    assert (status(outcome), outcome.status, outcome.exit_code) == ("CODER_FAILED", "failed", 1), outcome.output
    assert "none runs now" in outcome.output
