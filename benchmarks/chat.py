"""What the conversation at the terminal costs, in a pseudo-terminal, with a model that is scripted.

first prompt  CPU time until the prompt stands, as a multiple of `python -c pass`.
streaming     The share of a core, all threads together, while 100 kB of Markdown come as 200 pieces of 3 characters a
              second; beside it what the same takes to draw alone is in rendering.py.
typing        From a key that is written to the terminal until it is echoed, while 50 children of an agent work, each of
              which says ten words a second.
interrupting  From the frame that interrupts until the prompt is back, at 100 of the moments of
              tests/support/interrupt_moments.py (a fixed choice); after each the chat goes on, at a strict provider.
              Here the chat is in this process, without a terminal.

    python benchmarks/chat.py [--scale F] [--only PART]
"""

from __future__ import annotations

import argparse
import fcntl
import json
import multiprocessing
import os
import pty
import random
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rendering import PIECE, PIECES_A_SECOND, text_of

CHILDREN = 50
KEYS = 300
ROUNDS = 11
INTERRUPTS = 100
BUDGET = {"streaming": 0.10, "typing": 0.030, "interrupting": 0.5}
"""The share of a core; seconds, of 99 of 100 keys; seconds, of every moment."""

_ENDED = b"FINISHED"
_TICKS = os.sysconf("SC_CLK_TCK")


class Model(BaseHTTPRequestHandler):
    """Speaks OpenAI's format, and does what the prompt says: `page`, `lead`, or else goes on saying words.

    None of its words has an `x`, which is the key that is typed.
    """

    protocol_version = "HTTP/1.0"
    page = ""
    working: Any = None

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt = next(str(said["content"]) for said in reversed(body["messages"]) if said["role"] == "user")
        called = any(said["role"] == "tool" for said in body["messages"])
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        try:
            if prompt == "lead" and not called:
                self._calls()
            elif prompt == "page":
                self._says(self.page, PIECE, PIECES_A_SECOND)
            else:
                with self.working.get_lock():
                    self.working.value += 1
                self._says("word and again " * 10_000, 5, 10)
        except OSError:
            return  # the chat has ended

    def _calls(self) -> None:
        arguments = json.dumps({"agent": "child", "prompt": "work"})
        calls = [
            {
                "index": number,
                "id": f"call_{number}",
                "type": "function",
                "function": {"name": "agent__spawn", "arguments": arguments},
            }
            for number in range(CHILDREN)
        ]
        self._send({"role": "assistant", "tool_calls": calls}, None)
        self._send({}, "tool_calls")

    def _says(self, text: str, piece: int, rate: int) -> None:
        began = time.monotonic()
        for number, at in enumerate(range(0, len(text), piece)):
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
            self._send({"content": text[at : at + piece]}, None)
        self._send({}, "stop")

    def _send(self, delta: dict[str, Any], stop: str | None) -> None:
        chunk = {
            "id": "1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "model",
            "choices": [{"index": 0, "delta": delta, "finish_reason": stop}],
        }
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


def _serve(server: ThreadingHTTPServer, page: str, working: Any) -> None:
    Model.page, Model.working = page, working
    server.serve_forever()


@contextmanager
def model(page: str) -> Iterator[tuple[str, Any]]:
    """The address of a model in a process of its own, and how many requests it has that go on saying words."""
    ThreadingHTTPServer.request_queue_size = 128
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    working = multiprocessing.Value("i", 0)
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(server, page, working), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", working
    finally:
        process.kill()
        process.join()


class Chat:
    """`callboard chat` in a pseudo-terminal of so many columns."""

    def __init__(self, url: str, columns: int, *arguments: str) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="callboard-chat-")
        home = Path(self._home.name)
        client = {"type": "openai-compatible", "name": "fake", "api_base": url, "api_key": "sk-test"}
        (home / "config.yaml").write_text(json.dumps({"model": "fake:model", "clients": [client]}))
        for name, more in (("lead", f"can_spawn_agents: true\nmax_concurrent_agents: {CHILDREN}\n"), ("child", "")):
            (home / "agents" / name).mkdir(parents=True)
            (home / "agents" / name / "config.yaml").write_text(f"name: {name}\ninstructions: You work.\n{more}")
        places = {f"CALLBOARD_{name}_DIR": str(home / name.lower()) for name in ("STATE", "CACHE")}
        environment = {**os.environ, **places, "CALLBOARD_CONFIG_DIR": str(home), "TERM": "xterm-256color"}
        environment.pop("NO_COLOR", None)
        self.fd, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "callboard.cli", "chat", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)

    def read(self, seconds: float) -> bytes:
        """What it writes within this time, as soon as there is something."""
        return os.read(self.fd, 65536) if select.select([self.fd], [], [], seconds)[0] else b""

    def until(self, text: bytes, seconds: float = 60) -> None:
        """Reads until this is written."""
        end, kept = time.monotonic() + seconds, b""
        while text not in kept:
            if time.monotonic() > end:
                raise TimeoutError(f"{text!r} does not come; last was {kept[-500:]!r}")
            kept = (kept + self.read(0.5))[-70_000:]

    def drain(self, seconds: float) -> None:
        """Reads for this time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.read(left)

    def press(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    @property
    def cpu(self) -> float:
        """CPU seconds of the process so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def end(self) -> float:
        """Kills it; its CPU seconds."""
        self._process.send_signal(signal.SIGKILL)
        _, _, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = -signal.SIGKILL
        os.close(self.fd)
        self._home.cleanup()
        return usage.ru_utime + usage.ru_stime


def first_prompt(url: str, rounds: int) -> tuple[float, float]:
    """CPU seconds of `python -c pass`, and until the prompt stands; medians of interleaved rounds."""
    nothing, prompt = [], []
    for _ in range(rounds):
        bare = subprocess.Popen([sys.executable, "-c", "pass"])
        _, _, usage = os.wait4(bare.pid, 0)
        bare.returncode = 0
        nothing.append(usage.ru_utime + usage.ru_stime)
        chat = Chat(url, 80)
        chat.until(b">")
        prompt.append(chat.end())
    return statistics.median(nothing), statistics.median(prompt)


def streaming(url: str, columns: int) -> tuple[float, float]:
    """The share of a core while the page is said, and for how many seconds that was."""
    chat = Chat(url, columns)
    chat.until(b"lists commands")
    chat.drain(1)
    before, began = chat.cpu, time.monotonic()
    chat.press(b"page\r")
    chat.until(_ENDED, 600)
    seconds = time.monotonic() - began
    share = (chat.cpu - before) / seconds
    chat.end()
    return share, seconds


def typing(url: str, working: Any, keys: int) -> list[float]:
    """Seconds until each key was echoed, least first."""
    chat = Chat(url, 80, "lead")
    chat.until(b"lists commands")
    chat.press(b"lead\r")
    end = time.monotonic() + 60
    while working.value < CHILDREN:
        if time.monotonic() > end:
            raise TimeoutError(f"{working.value} of {CHILDREN} children work")
        chat.drain(0.1)
    chat.drain(2)
    found = []
    for _ in range(keys):
        began = time.perf_counter()
        chat.press(b"x")
        chat.until(b"x")
        found.append(time.perf_counter() - began)
        chat.press(b"\x7f")
        chat.drain(0.15)
    chat.end()
    return sorted(found)


def interrupting(count: int) -> tuple[list[float], list[float]]:
    """Seconds until the prompt was back, and from then until no process was left; least first."""
    import trio

    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from support.interrupt_moments import MOMENTS
    from support.interrupted_chat import Measured, scene_of
    from support.subreaper import become_subreaper

    become_subreaper()  # or what is left could not be seen
    measured: list[Measured] = []

    async def play(directory: Path, moment: Any, wire: str) -> None:
        async with scene_of(directory, wire, moment) as scene:
            measured.append(await scene.play(moment))

    for moment, wire in random.Random(16).sample(MOMENTS, count):
        with tempfile.TemporaryDirectory(prefix="callboard-interrupt-") as name:
            os.environ |= {f"CALLBOARD_{each}_DIR": f"{name}/{each}" for each in ("STATE", "CACHE")}
            os.environ["XDG_STATE_HOME"] = f"{name}/home"
            trio.run(play, Path(name), moment, wire)
    return sorted(each.prompt for each in measured), sorted(each.gone for each in measured)


def _first_prompt(scale: float, url: str) -> bool:
    nothing, prompt = first_prompt(url, max(int(ROUNDS * scale), 3))
    print(f"first prompt   {prompt * 1000:.0f} ms of CPU, {prompt / nothing:.1f} x python -c pass", flush=True)
    return True


def _streaming(url: str) -> bool:
    kept = True
    for columns in (80, 200):
        share, seconds = streaming(url, columns)
        kept = kept and share <= BUDGET["streaming"]
        print(
            f"streaming      {columns:3} columns: {share:.1%} of a core for {seconds:.0f} s,"
            f" budget {BUDGET['streaming']:.0%}: {_verdict(share <= BUDGET['streaming'])}",
            flush=True,
        )
    return kept


def _typing(scale: float, url: str, working: Any) -> bool:
    found = typing(url, working, max(int(KEYS * scale), 20))
    kept = _part(found, 0.99) <= BUDGET["typing"]
    print(
        f"typing         {CHILDREN} children: p50 {_part(found, 0.5) * 1000:.1f} ms,"
        f" p99 {_part(found, 0.99) * 1000:.1f} ms, budget p99 {BUDGET['typing'] * 1000:.0f} ms: {_verdict(kept)}",
        flush=True,
    )
    return kept


def _interrupting(scale: float) -> bool:
    found, gone = interrupting(max(int(INTERRUPTS * scale), 5))
    kept = found[-1] <= BUDGET["interrupting"]
    print(
        f"interrupting   {len(found)} moments: p50 {_part(found, 0.5) * 1000:.1f} ms, p99"
        f" {_part(found, 0.99) * 1000:.0f} ms, max {found[-1] * 1000:.0f} ms, budget max"
        f" {BUDGET['interrupting'] * 1000:.0f} ms: {_verdict(kept)}; no process is left {gone[-1] * 1000:.0f} ms later",
        flush=True,
    )
    return kept


def _part(found: list[float], part: float) -> float:
    return found[min(int(len(found) * part), len(found) - 1)]


def main() -> int:
    """Prints the figures; 1 if a budget was not kept."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=1.0, help="a fraction of the work")
    parser.add_argument("--only", choices=("prompt", "streaming", "typing", "interrupting"), help="one part alone")
    given = parser.parse_args()
    scale, only = given.scale, given.only
    text = text_of([])
    page = text[: int(len(text) * scale)] + f"\n\n{_ENDED.decode()}\n"
    kept = []
    with model(page) as (url, working):
        if only in (None, "prompt"):
            kept.append(_first_prompt(scale, url))
        if only in (None, "streaming"):
            kept.append(_streaming(url))
        if only in (None, "typing"):
            kept.append(_typing(scale, url, working))
        if only in (None, "interrupting"):
            kept.append(_interrupting(scale))
    return 0 if all(kept) else 1


def _verdict(kept: bool) -> str:
    return "kept" if kept else "NOT KEPT"


if __name__ == "__main__":
    sys.exit(main())
