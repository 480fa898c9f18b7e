"""The page of `callboard run --ui`: it shows that run, and its end, though the server ends with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import trio
import trio_websocket
from support.browser import Browser
from support.serve_process import CALLBOARD

SLOW = """
name: slow
start: work
nodes:
  work: {type: script, script: work.sh, timeout: 60, on_error: fail, next: done}
  done: {type: end, output: "all done"}
"""


PATIENT = """
from callboard.actors.front.server import serving
from callboard.cli.start import main
serving.CANCEL_WITHIN = serving.LAST_WORDS = 60.0  # this machine may be slow
main()
"""


async def _begun(
    home: Path, nursery: trio.Nursery, work: str, program: Sequence[str] = (CALLBOARD,)
) -> tuple[str, trio.Process]:
    """The address that `run --ui` has told, of a graph whose script is `work`."""
    (home / "graph.yaml").write_text(SLOW)
    (home / "work.sh").write_text(f"{work}\n")
    process: trio.Process = await nursery.start(
        lambda task_status: trio.run_process(
            [*program, "run", "--ui", str(home), "-q"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "HOME": str(home), "XDG_STATE_HOME": str(home / "state")},
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
    return address, process


@pytest.mark.parametrize(
    ("how", "code", "status"),
    [
        ("end", 0, "done"),
        pytest.param("fail", 1, "failed", marks=pytest.mark.soak),
        pytest.param("signal", 130, "interrupted", marks=pytest.mark.soak),
    ],
)
async def test_it_opens_the_run_and_tells_how_that_has_ended(
    browser: Browser, tmp_path: Path, nursery: trio.Nursery, how: str, code: int, status: str
) -> None:
    go_on = tmp_path / "go"
    last = "exit 3" if how == "fail" else "echo {}"
    address, process = await _begun(tmp_path, nursery, f"until [ -e {go_on} ]; do sleep 0.05; done; {last}")
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


async def test_who_follows_the_run_hears_its_end_before_a_signal_ends_the_server(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    """Without a browser: its page connects again, and may hear the end then."""
    address, process = await _begun(tmp_path, nursery, "sleep 60", [sys.executable, "-c", PATIENT])
    at, _, rest = address.partition("/#token=")
    token, _, run = rest.partition("&run=")
    headers = [("authorization", f"Bearer {token}")]
    heard: list[str] = []
    with trio.fail_after(60):
        async with trio_websocket.open_websocket_url(at.replace("http", "ws") + "/ws", extra_headers=headers) as socket:
            follow = {"jsonrpc": "2.0", "id": 1, "method": "_run/subscribe", "params": {"run": run, "after": 0}}
            await socket.send_message(json.dumps(follow))
            while "/work/work.sh" not in (heard or [""])[-1]:
                heard.append(await socket.get_message())
            process.send_signal(signal.SIGINT)
            with suppress(trio_websocket.ConnectionClosed):
                while True:
                    heard.append(await socket.get_message())
        assert await process.wait() == 130
    assert "run.cancelled" in [json.loads(frame)["params"].get("event", {}).get("kind") for frame in heard[1:]]
