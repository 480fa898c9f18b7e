"""The sandbox of an ordinary user whose environment is made from the system's Python, as most users have it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import sandbox_battery, sandbox_tasks
from support.ordinary_user import OrdinaryUser, ordinary_user
from support.sandbox_surroundings import BACKENDS

pytestmark = [pytest.mark.full, pytest.mark.one_worker]  # one user and one installation for all of them

ATTEMPTS = 600


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OrdinaryUser]:
    with ordinary_user(tmp_path_factory.mktemp("wheel")) as made:
        yield made


def run(user: OrdinaryUser, script: str | None, *arguments: str) -> dict[str, Any]:
    assert script is not None
    done = user.run(user.python, user.copy(Path(script)), *arguments)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    if "why_not" in found:
        pytest.skip(f"no sandbox of this kind for an ordinary user here: {found['why_not']}")
    return found


def test_the_environment_is_of_the_systems_python_and_has_a_wheel(user: OrdinaryUser) -> None:
    code = "import sys, callboard; print(sys.base_prefix, callboard.__file__)"
    base, file = user.run(user.python, "-c", code).stdout.split()
    assert base == "/usr"
    assert file.startswith(f"{user.home}/environment/")


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_attempt_gets_out(user: OrdinaryUser, capsys: pytest.CaptureFixture[str], backend: str) -> None:
    found = run(user, sandbox_battery.__file__, backend, "3", str(ATTEMPTS))
    with capsys.disabled():
        print(f"\n{backend}, ordinary user: {found['tried']} attempts, {len(found['through'])} escapes")
    assert (found["tried"], found["through"], found["changed"]) == (ATTEMPTS, [], [])
    assert found["controls"] == [], "an attempt is refused in the workspace, too, so it shows nothing"


@pytest.mark.parametrize("backend", BACKENDS)
def test_coding_tasks_need_no_question(user: OrdinaryUser, capsys: pytest.CaptureFixture[str], backend: str) -> None:
    found = run(user, sandbox_tasks.__file__, backend)
    needless = found["needless"]
    with capsys.disabled():
        print(f"\n{backend}, ordinary user: needless questions in {len(needless)} of {found['tasks']} coding tasks")
    assert needless == []


def test_doctor_finds_nothing_unexpected(user: OrdinaryUser) -> None:
    done = user.run(user.python, "-m", "callboard", "doctor", "--sandbox")
    assert done.returncode == 0, done.stdout
    assert "0 not as expected" in done.stdout, done.stdout
