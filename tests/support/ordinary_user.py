"""An ordinary user of the machine whose environment is made from the system's Python.

Developers run the tests with a Python of their own, often as root, from a checkout. A user has `/usr/bin/python3`, a
virtual environment in the home directory, and a wheel in it. The sandbox shows and hides paths by where these are.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.built_wheel import build

SYSTEM_PYTHON = Path("/usr/bin/python3")
OLDEST = (3, 11)


class OrdinaryUser:
    """A user with an installed callboard.

    Attributes:
        home: the home directory.
        python: the interpreter of the user's environment.
    """

    def __init__(self, name: str, home: Path) -> None:
        self.home = home
        self.python = home / "environment/bin/python3"
        self._name = name

    def run(self, *argv: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command in the home directory, with the user's environment first on PATH."""
        env = ["env", "-i", f"HOME={self.home}", f"PATH={self.python.parent}:/usr/bin:/bin"]
        return subprocess.run(
            ["runuser", "-u", self._name, "--", *env, *map(str, argv)],
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
        )

    def copy(self, file: Path) -> Path:
        """Copy a file to the home directory; a checkout may be in a directory that the user can't read."""
        copied = self.home / file.name
        shutil.copy(file, copied)
        copied.chmod(0o644)
        return copied


@contextlib.contextmanager
def ordinary_user(directory: Path) -> Iterator[OrdinaryUser]:
    """Make a user, and install a wheel of this checkout in an environment of the user's; remove both afterwards.

    Args:
        directory: an empty directory for building the wheel.

    Skips the test without root, a system Python that is new enough, its venv module, or a package index.
    """
    if os.geteuid() != 0 or shutil.which("useradd") is None or shutil.which("runuser") is None:
        pytest.skip("only root can make a user, with useradd and runuser")
    check = f"import ensurepip, sys, venv; sys.exit(sys.version_info < {OLDEST})"
    if subprocess.run([SYSTEM_PYTHON, "-c", check], capture_output=True, check=False).returncode:
        pytest.skip(f"no {SYSTEM_PYTHON} of version {OLDEST[0]}.{OLDEST[1]} or newer with venv (apt: python3-venv)")
    name = f"callboard-{uuid.uuid4().hex[:8]}"
    subprocess.run(["useradd", "--create-home", "--base-dir", "/var/tmp", name], check=True, capture_output=True)
    try:
        user = OrdinaryUser(name, Path(pwd.getpwnam(name).pw_dir))
        wheel = user.copy(build(directory / "source", directory / "built"))
        made = user.run(SYSTEM_PYTHON, "-m", "venv", "environment")
        assert made.returncode == 0, made.stderr
        installed = user.run(user.python, "-m", "pip", "install", "--quiet", wheel)
        if installed.returncode:
            pytest.skip(f"callboard can't be installed from a package index: {installed.stderr[-300:]}")
        yield user
    finally:
        subprocess.run(["userdel", "--remove", "--force", name], check=False, capture_output=True)
