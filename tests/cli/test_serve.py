"""`callboard serve` as a process: what it says, what signals do to it, and what it leaves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from support.screen import Screen
from support.serve_process import CALLBOARD, SOON, Serving

from callboard.actors.front.control.logs.run_logs import list_logged_runs

SLOW = """
name: slow
start: work
nodes:
  work: {type: script, script: work.sh, timeout: 60, next: done}
  done: {type: end, output: done}
"""


Start = Callable[..., Serving]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Serving] = []
    (tmp_path / "config").mkdir()

    def begin(*flags: str, settings: str = "") -> Serving:
        (tmp_path / "config" / "config.yaml").write_text(settings)
        started.append(Serving(tmp_path, *flags))
        return started[-1]

    yield begin
    for serving in started:
        serving.process.kill()
        serving.process.wait()
        if serving.process.stderr is not None:
            serving.process.stderr.close()


def slow_agent(home: Path) -> Path:
    """An agent whose run ends when the file is there."""
    agent = home / "config" / "agents" / "slow"
    agent.mkdir(parents=True)
    (agent / "graph.yaml").write_text(SLOW)
    go_on = home / "go"
    (agent / "work.sh").write_text(f"until [ -e {go_on} ]; do sleep 0.05; done; echo {{}}\n")
    return go_on


def test_it_says_where_it_is_and_ends_cleanly(start: Start, tmp_path: Path) -> None:
    serving = start("--ui")
    url = serving.see("serving at ").split()[-1]
    page = serving.see("the page: ").split()[-1]
    assert page.startswith(f"{url}/#token=")
    assert serving.ask("/v1/info")["subject"] == "local"
    serving.process.send_signal(signal.SIGTERM)
    assert serving.end() == 0
    assert not list((tmp_path / "state" / "callboard" / "servers").iterdir())
    assert page.partition("token=")[2] not in "".join(serving.said[2:])


def test_the_token_is_not_told_to_a_log(start: Start) -> None:
    serving = start()
    serving.see("serving at ")
    serving.process.send_signal(signal.SIGINT)
    assert serving.end() == 0
    assert "token" not in "".join(serving.said)


def test_sigterm_lets_a_run_end_and_begins_no_other(start: Start, tmp_path: Path) -> None:
    go_on = slow_agent(tmp_path)
    serving = start()
    serving.see("serving at ")
    run = serving.ask("/v1/runs", {"target": "slow"})["run"]
    serving.process.send_signal(signal.SIGTERM)
    serving.see("1 run under way")
    assert serving.ask("/healthz/ready", status=503)["status"] == "stopping"
    assert serving.ask("/v1/runs", {"target": "slow"}, status=503)["error"]["code"] == "shutting_down"
    go_on.touch()
    assert serving.end() == 0
    assert [(info.run, info.status) for info in list_logged_runs(tmp_path / "state/callboard/runs")] == [(run, "done")]


def test_a_second_signal_leaves_what_is_under_way_to_the_next_server(start: Start, tmp_path: Path) -> None:
    slow_agent(tmp_path)
    serving = start()
    serving.see("serving at ")
    run = serving.ask("/v1/runs", {"target": "slow"})["run"]
    serving.process.send_signal(signal.SIGINT)
    serving.see("1 run under way")
    serving.process.send_signal(signal.SIGINT)
    assert serving.end() == 130
    assert [(info.run, info.status) for info in list_logged_runs(tmp_path / "state/callboard/runs")] == [
        (run, "interrupted")
    ]


@pytest.mark.parametrize(
    ("flags", "settings", "code", "said"),
    [
        ((), "api: {enabled: false}", 3, "api.enabled"),
        (("--host", "0.0.0.0"), "api: {enabled: true}", 2, "no API key is set"),
        (
            (),
            "api: {limits: {max_body_bytes: -1, max_concurrent_requests: 0}, surprise: 1}",
            3,
            "max_concurrent_requests",
        ),
    ],
    ids=["disabled", "open to all", "wrong settings"],
)
def test_case_105_it_refuses_to_start(
    start: Start, flags: tuple[str, ...], settings: str, code: int, said: str
) -> None:
    serving = start(*flags, settings=settings)
    assert serving.end() == code
    assert said in "".join(serving.said)
    assert "Traceback" not in "".join(serving.said)


def test_a_run_can_be_seen_on_a_page_while_it_goes_on(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    go_on = slow_agent(tmp_path)
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    argv = [CALLBOARD, "run", "--ui", "--config-dir", str(tmp_path / "config"), "slow"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ) as process:
        try:
            assert process.stderr is not None
            page = next(line for line in process.stderr if "the page: " in line).split()[-1]
            url, _, fragment = page.partition("/#token=")
            token, _, run = fragment.partition("&run=")
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            request = urllib.request.Request(f"{url}/v1/runs", headers={"authorization": f"Bearer {token}"})
            runs: list[Any] = []
            while not runs:
                with opener.open(request, timeout=SOON) as response:
                    runs = json.load(response)["runs"]
            assert [(each["name"], each["run"]) for each in runs] == [("slow", run)]
            go_on.touch()
            out, rest = process.communicate(timeout=SOON)
        finally:
            process.kill()
    assert out == "done\n"
    assert process.returncode == 0
    assert "timestamp" not in rest


@pytest.mark.parametrize("quiet", [[], ["-q"]])
@pytest.mark.sample(1)
def test_a_run_without_the_extra_says_what_the_page_needs_and_no_address(tmp_path: Path, quiet: list[str]) -> None:
    (tmp_path / "config").mkdir()
    slow_agent(tmp_path).touch()
    without = "import sys; sys.modules['starlette.applications'] = None; from callboard.cli.start import main; main()"
    argv = [sys.executable, "-c", without, "run", "--ui", "--config-dir", str(tmp_path / "config"), "slow", *quiet]
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    ended = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environ, timeout=SOON, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "done\n")
    assert ended.stderr.count("[server]'") == 1
    assert "http" not in ended.stderr.replace("HTTP", "http").partition("pip")[0]


async def test_at_a_terminal_it_says_how_to_go_on_and_requests_do_not_push_that_away(
    tmp_path: Path, screen: Screen
) -> None:
    (tmp_path / "config").mkdir()
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    argv = [CALLBOARD, "serve", "--port", "0", "--config-dir", str(tmp_path / "config")]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=screen.slave, env=environ) as process:
        try:
            await screen.shows(r"the page: \S+[\s\S]*from other terminals: [\s\S]*Ctrl-C here ends the server")
            page = screen.text.partition("the page: ")[2].split()[0].partition("#")[0]
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with await trio.to_thread.run_sync(lambda: opener.open(page, timeout=SOON)) as response:
                assert b"Callboard" in response.read()
            with pytest.raises(urllib.error.HTTPError, match="401"):
                await trio.to_thread.run_sync(lambda: opener.open(f"{page}v1/runs", timeout=SOON))
            process.send_signal(signal.SIGINT)
            await screen.shows("stopping")
            assert await trio.to_thread.run_sync(process.wait, SOON) == 0
        finally:
            process.kill()
    assert "request_id" not in screen.text
    assert "AuthFailure" not in screen.text
    assert "GET" not in screen.text
