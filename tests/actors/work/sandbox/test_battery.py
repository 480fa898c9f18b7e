"""Hundreds of attempts to get out of the sandbox, as root and as an ordinary user, under each backend."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.sandbox_battery import battery
from support.sandbox_surroundings import BACKENDS, need

import callboard

SYSTEM_PYTHON = "/usr/bin/python3"
SCRIPT = Path(__file__).parents[3] / "support" / "sandbox_battery.py"


def check(found: dict[str, Any], tried: int) -> None:
    assert (found["tried"], found["through"], found["changed"]) == (tried, [], [])
    assert found["controls"] == [], "an attempt is refused in the workspace, too, so it shows nothing"


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_attempt_of_a_sample_gets_out(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    need(backend, monkeypatch)
    check(battery(backend, 1, 100), 100)


@pytest.mark.full
@pytest.mark.parametrize("backend", BACKENDS)
def test_no_attempt_gets_out(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    need(backend, monkeypatch)
    check(battery(backend, 2, 600), 600)


@pytest.fixture
def user() -> Iterator[str]:
    """An ordinary user of the machine, who is removed afterwards."""
    if os.geteuid() != 0 or shutil.which("useradd") is None or shutil.which("runuser") is None:
        pytest.skip("only root can make a user, with useradd and runuser")
    name = f"callboard-{uuid.uuid4().hex[:8]}"
    subprocess.run(["useradd", "--create-home", "--base-dir", "/var/tmp", name], check=True, capture_output=True)
    try:
        yield name
    finally:
        subprocess.run(["userdel", "--remove", "--force", name], check=False, capture_output=True)


@pytest.mark.full
@pytest.mark.parametrize("backend", BACKENDS)
def test_no_attempt_of_an_ordinary_user_gets_out(user: str, backend: str) -> None:
    home = Path(pwd.getpwnam(user).pw_dir)
    version = subprocess.run([SYSTEM_PYTHON, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True)
    if version.stdout.decode().strip() != str(sys.version_info[:2]):
        pytest.skip("the system's Python is another version, which can't import what is compiled for this one")
    environment = home / "environment"
    environment.mkdir()
    package, installed = Path(callboard.__file__).parent, Path(msgspec.__file__).parents[1]
    (environment / "callboard").symlink_to(package)
    path = f"{environment}:{installed}"
    run = ["runuser", "-u", user, "--", "env", "-i", f"HOME={home}", "PATH=/usr/bin:/bin", f"PYTHONPATH={path}"]
    run += ["PYTHONDONTWRITEBYTECODE=1", SYSTEM_PYTHON]
    if subprocess.run([*run, "-c", "import callboard, trio"], cwd="/", capture_output=True, check=False).returncode:
        pytest.skip("this checkout can't be read by an ordinary user")
    done = subprocess.run(
        [*run, str(SCRIPT), backend, "3", "600"], cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    if not found["tried"]:
        pytest.skip(f"no {backend} for an ordinary user here: {found['why_not']}")
    check(found, 600)
