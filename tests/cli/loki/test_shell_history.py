"""Commands in the history files of shells, as the shells themselves read them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from callboard.cli.loki.execute import add_to_history

COMMAND = "echo 'grüße' \\\n  && printf '%s\\n' ”a”"


@pytest.fixture
def home(tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a history of each shell."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HISTFILE", "ZDOTDIR", "XDG_DATA_HOME", "fish_history"):
        monkeypatch.delenv(name, raising=False)
    (home / ".bash_history").write_text("ls\n")
    (home / ".zsh_history").write_text(": 1700000000:0;ls\n")
    (home / ".local/share/fish").mkdir(parents=True)
    (home / ".local/share/fish/fish_history").write_text("- cmd: ls\n  when: 1700000000\n")
    return home


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


def test_bash_finds_it(home: Path) -> None:
    (home / ".bash_history").write_text("#1700000000\nls\n")
    add_to_history(COMMAND, "/bin/bash", None)
    read = f"history -c; history -r {home}/.bash_history; fc -ln -1 -1"
    script = f"HISTTIMEFORMAT=; shopt -s cmdhist lithist; set -o history; {read}"
    found = output("bash", "--norc", "-c", script)
    assert found.strip("\t \n").replace("\n\t ", "\n") == COMMAND


def test_bash_without_times_gets_a_line(home: Path) -> None:
    add_to_history("echo a", "/bin/bash", None)
    assert (home / ".bash_history").read_text() == "ls\necho a\n"


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize("extended", [True, False])
def test_zsh_finds_it(home: Path, extended: bool) -> None:
    if not extended:
        (home / ".zsh_history").write_text("ls\n")
    add_to_history(COMMAND, "/bin/zsh", None)
    add_to_history("echo last", "/bin/zsh", None)
    script = f"fc -p {home}/.zsh_history 100 100; print -r -- ${{history[2]}}"
    assert output("zsh", "-f", "-i", "-c", script).rstrip("\n") == COMMAND


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_finds_it(home: Path) -> None:
    add_to_history(COMMAND, "/usr/bin/fish", None)
    assert output("fish", "-c", "history --null --max 1").rstrip("\0") == COMMAND


def test_a_last_line_that_was_cut_off_stays_one_of_its_own(home: Path) -> None:
    (home / ".bash_history").write_text("ls -")
    add_to_history("echo a", "/bin/bash", None)
    assert (home / ".bash_history").read_text() == "ls -\necho a\n"


def test_a_history_that_is_not_there_is_not_made(home: Path) -> None:
    (home / ".bash_history").unlink()
    add_to_history("echo a", "/bin/bash", None)
    add_to_history("echo a", "/bin/dash", None)
    assert not (home / ".bash_history").exists()


def test_a_link_is_not_followed(home: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("x\n")
    (home / ".bash_history").unlink()
    (home / ".bash_history").symlink_to(tmp_path / "elsewhere")
    add_to_history("echo a", "/bin/bash", None)
    assert (tmp_path / "elsewhere").read_text() == "x\n"
