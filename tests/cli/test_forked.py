"""A fork of `callboard` (tests/support/starter.py) is to the tests what a Python of its own is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest
import trio
from support.fake_models import FakeModels, Reply
from support.screen import Screen
from support.starter import CALLBOARD
from support.waiting import PATIENCE

PROGRAMS = pytest.mark.parametrize(
    "program", [(sys.executable, "-m", "callboard.cli"), CALLBOARD], ids=["python", "fork"]
)
Program = tuple[str, ...]


@PROGRAMS
def test_it_has_its_own_arguments_files_directory_environment_and_exit_code(program: Program, tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text("name: g\nstart: e\nnodes: {e: {type: end}}\n")

    def told(*words: str, **environ: str) -> tuple[int, str, str]:
        environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **environ}
        done = subprocess.run(
            [*program, *words], capture_output=True, text=True, cwd=tmp_path, check=False, env=environ
        )
        return done.returncode, done.stdout, done.stderr

    assert told("validate", "g.yaml") == (0, "g.yaml: no problems\n", "")
    assert told("validate", "no.yaml") == (2, "", "callboard: the file 'no.yaml' does not exist\n")
    assert told("agen", _CALLBOARD_COMPLETE="words_complete")[1].startswith("plain\tagents\t")
    code, out, err = told("validate")
    assert (code, out, "Missing argument 'TARGET'" in err) == (2, "", True)


@PROGRAMS
async def test_it_is_a_child_of_ours_at_a_terminal_of_its_own_that_signals_reach(
    program: Program, fake_model: FakeModels, tmp_path: Path, screen: Screen
) -> None:
    fake_model.script(Reply(hold=trio.Event()))
    config = fake_model.config_dir(tmp_path / "config")
    end = screen.slave
    process = await trio.lowlevel.open_process(
        [*program, "ask", "hello"],
        stdin=end,
        stdout=end,
        stderr=end,
        env={**os.environ, "CALLBOARD_CONFIG_DIR": str(config), "TERM": "xterm"},
        preexec_fn=partial(os.login_tty, end),
    )
    await fake_model.arrived(1)
    seen = psutil.Process(process.pid)
    terminal = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[4])  # psutil's may be stale
    assert (seen.ppid(), os.getsid(process.pid), terminal) == (os.getpid(), process.pid, os.fstat(end).st_rdev)
    screen.press("\x03")  # the terminal makes a signal of it
    with trio.fail_after(PATIENCE):
        assert await process.wait() == 128 + signal.SIGINT
