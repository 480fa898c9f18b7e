"""The page of `callboard run --ui`: it shows that run, and its end, though the server ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
import trio
from browser import Browser
from serve_process import CALLBOARD

SLOW = """
name: slow
start: work
nodes:
  work: {type: script, script: work.sh, timeout: 60, on_error: fail, next: done}
  done: {type: end, output: "all done"}
"""


@pytest.mark.parametrize(
    ("how", "code", "status"), [("end", 0, "done"), ("fail", 1, "failed"), ("signal", 130, "cancelled")]
)
async def test_it_opens_the_run_and_tells_how_that_has_ended(
    browser: Browser, tmp_path: Path, nursery: trio.Nursery, how: str, code: int, status: str
) -> None:
    go_on = tmp_path / "go"
    (tmp_path / "graph.yaml").write_text(SLOW)
    last = "exit 3" if how == "fail" else "echo {}"
    (tmp_path / "work.sh").write_text(f"until [ -e {go_on} ]; do sleep 0.05; done; {last}\n")
    process: trio.Process = await nursery.start(
        lambda task_status: trio.run_process(
            [CALLBOARD, "run", "--ui", str(tmp_path), "-q"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")},
            check=False,
            task_status=task_status,
        )
    )
    assert process.stderr is not None
    told = b""
    with trio.fail_after(60):
        while not told.endswith(b"\n"):
            told += await process.stderr.receive_some()
    address = told.decode().strip()
    assert "/#token=" in address
    run = address.partition("&run=")[2]
    assert run.startswith("run-")
    async with browser.page(address) as page:
        await page.until("document.querySelector('h1')?.textContent === 'slow'")
        assert await page.evaluate("location.hash") == f"#/run/{run}"
        await page.until("document.querySelector('.tree')?.textContent.includes('work')")
        if how == "signal":
            process.send_signal(signal.SIGINT)
        else:
            go_on.touch()
        assert await process.wait() == code
        await page.until(f"document.querySelector('.gate h2').textContent === 'The run has ended: {status}'")
        await page.until(f"document.querySelector('.head .badge').lastChild.textContent === '{status}'")
        assert "connection" not in await page.evaluate("document.querySelector('.gate').textContent")
