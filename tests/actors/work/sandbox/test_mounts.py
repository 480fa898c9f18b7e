"""Mounts that bubblewrap makes for a policy: each costs a tenth of a millisecond, so none is made for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from callboard.actors.work.sandbox import bubblewrap
from callboard.actors.work.sandbox.policy import Policy


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in (".tool/bin", ".tool/private/state", "work/deep"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / ".tool/private/key").touch()
    return tmp_path


def mounts(policy: Policy) -> list[list[str]]:
    """Return the mounts after the fixed ones, each with its path relative to the home."""
    told = bubblewrap.options(policy, filter=3, as_root=True)
    found: list[list[str]] = []
    for word in told[told.index("CAP_FOWNER") + 1 :]:
        if word.startswith("--"):
            found.append([word])
        else:
            found[-1].append(word)
    return found


def test_what_is_hidden_in_a_hidden_directory_needs_no_mount(home: Path) -> None:
    tool = str(home / ".tool")
    policy = Policy(profile="workspace", hides=(tool, f"{tool}/private", f"{tool}/private/key"), network=True)
    made = [each for each in mounts(policy) if home.name in each[1]]
    assert made == [["--tmpfs", tool], ["--remount-ro", tool]]


def test_what_is_shown_in_a_shown_directory_needs_no_mount(home: Path) -> None:
    tool = str(home / ".tool")
    policy = Policy(profile="workspace", hides=(tool,), shows=(tool, f"{tool}/bin"), network=True)
    made = [each for each in mounts(policy) if home.name in each[1]]
    assert made == [["--ro-bind-try", tool, tool]]


def test_what_is_hidden_in_a_directory_that_is_shown_in_a_hidden_one_is_covered(home: Path) -> None:
    tool, private = str(home / ".tool"), str(home / ".tool/private")
    policy = Policy(profile="workspace", hides=(tool, f"{private}/key"), shows=(private,), network=True)
    made = [each for each in mounts(policy) if home.name in each[-1]]
    assert made == [
        ["--tmpfs", tool],
        ["--ro-bind-try", private, private],
        ["--ro-bind", "/dev/null", f"{private}/key"],
        ["--remount-ro", tool],
    ]


def test_what_is_shown_in_a_writable_directory_of_a_hidden_one_stays_read_only(home: Path) -> None:
    tool, private, state = (str(home / name) for name in (".tool", ".tool/private", ".tool/private/state"))
    policy = Policy(profile="workspace", hides=(tool,), writes=(private,), shows=(tool, state), network=True)
    made = [each for each in mounts(policy) if home.name in each[-1]]
    assert made == [
        ["--ro-bind-try", tool, tool],
        ["--bind-try", private, private],
        ["--ro-bind-try", state, state],
    ]
