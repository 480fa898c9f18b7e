"""A call of `fs_*` that was under way at a kill is made once: the files tell whether it was done."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import trio
from support.fake_models import FakeModels, Reply, Request
from support.starter import forked

EDITING = Path(__file__).with_name("editing.py")

EDIT = {"path": "d/a.txt", "edits": [{"old_string": "one", "new_string": "one and one"}]}
PATCH = {"path": "d/a.txt", "contents": "@@ -1 +1,2 @@\n one\n+one\n"}
WRITE = {"path": "d/e/b.txt", "contents": "two\n"}
REMOVE = {"path": "d"}


class Project:
    """A directory with a file, and an agent that is told to make one call there."""

    def __init__(self, home: Path, models: FakeModels, tool: str, arguments: dict[str, Any]) -> None:
        self.directory = home / "project"
        (self.directory / "d").mkdir(parents=True)
        (self.directory / "d/a.txt").write_text("one\n")
        self._models = models
        self._order = {"project": str(self.directory), "config": str(models.config_dir(home / "config")), "tool": tool}
        self._environ = {**os.environ, "XDG_STATE_HOME": str(home / "state")}
        models.answer_with(calling(tool, arguments))

    async def play(self, **order: Any) -> dict[str, Any] | None:
        """What the program prints at its end; None if it was killed."""
        command = [*forked(EDITING), json.dumps({**self._order, **order})]
        program = await trio.run_process(command, env=self._environ, capture_stdout=True, check=False)
        if program.returncode == -9:
            return None
        said: dict[str, Any] = json.loads(program.stdout)
        return said

    def files(self) -> dict[str, str]:
        """Contents by path."""
        paths = (path for path in self.directory.rglob("*") if path.is_file() and ".callboard" not in path.name)
        return {str(path.relative_to(self.directory)): path.read_text() for path in paths}

    @property
    def read(self) -> str:
        """What the model has read of the call."""
        return str(self._models.requests[-1].results)


def calling(tool: str, arguments: dict[str, Any]) -> Any:
    def answer(request: Request) -> Reply:
        return Reply(text="over") if request.results else Reply(calls=[(tool, arguments)])

    return answer


@pytest.mark.parametrize("kill", ["before", "after"])
@pytest.mark.parametrize(
    ("tool", "arguments", "files"),
    [
        ("fs_edit", EDIT, {"d/a.txt": "one and one\n"}),
        ("fs_patch", PATCH, {"d/a.txt": "one\none\n"}),
        ("fs_write", WRITE, {"d/a.txt": "one\n", "d/e/b.txt": "two\n"}),
        ("fs_rm", REMOVE, {}),
    ],
)
@pytest.mark.sample(3)
async def test_it_is_made_once(
    tmp_path: Path, fake_model: FakeModels, tool: str, arguments: dict[str, Any], files: dict[str, str], kill: str
) -> None:
    project = Project(tmp_path, fake_model, tool, arguments)
    assert await project.play(kill=kill) is None
    assert await project.play(resume=True) == {"output": "over", "status": "done"}
    assert project.files() == files
    assert ("was not repeated" in project.read) == (kill == "after"), project.read


async def test_if_the_file_was_changed_meanwhile_the_model_is_told_that_the_outcome_is_unknown(
    tmp_path: Path, fake_model: FakeModels
) -> None:
    project = Project(tmp_path, fake_model, "fs_edit", EDIT)
    assert await project.play(kill="after") is None
    (project.directory / "d/a.txt").write_text("one, by hand\n")
    assert await project.play(resume=True) == {"output": "over", "status": "done"}
    assert project.files() == {"d/a.txt": "one, by hand\n"}
    assert "unknown" in project.read


async def test_a_process_that_is_killed_again_and_again_still_makes_it_once(
    tmp_path: Path, fake_model: FakeModels
) -> None:
    project = Project(tmp_path, fake_model, "fs_edit", EDIT)
    assert await project.play(kill="before") is None
    assert await project.play(kill="before", resume=True) is None
    assert await project.play(kill="after", resume=True) is None
    assert await project.play(resume=True) == {"output": "over", "status": "done"}
    assert project.files() == {"d/a.txt": "one and one\n"}
