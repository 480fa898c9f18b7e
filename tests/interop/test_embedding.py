"""Programs of other frameworks that embed Callboard: FastAPI, gunicorn, Celery, notebooks, multiprocessing.

They run in the environment `embedding` of `make interop`, with this checkout on their path.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
import psutil
import pytest
import trio
from interop.environments import HERE, INSTALLED, needs
from support.fake_models import FakeModels, Reply, Request
from support.waiting import PATIENCE, until

pytestmark = [needs("embedding")]

BIN = INSTALLED / "embedding/bin"
PROGRAMS = HERE / "programs"
ROOT = HERE.parents[1]
WORDS = "hello world again"


def environment(config_dir: Path, **more: str) -> dict[str, str]:
    """The environment of a program: it finds this checkout, and keeps its state beside the configuration."""
    path = os.pathsep.join([str(ROOT / ".types"), str(PROGRAMS)])
    places = {f"XDG_{kind}_HOME": str(config_dir / kind.lower()) for kind in ("STATE", "CACHE", "DATA")}
    return {**os.environ, "PYTHONPATH": path, "CALLBOARD_CONFIG_DIR": str(config_dir), **places, **more}


@contextmanager
def started(*words: str | Path, env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A program that is ended with the block, and what it has started."""
    process = subprocess.Popen(list(map(str, words)), env=env, start_new_session=True, cwd=PROGRAMS)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@asynccontextmanager
async def served(port: int, env: Mapping[str, str], *words: str | Path) -> AsyncIterator[tuple[httpx.AsyncClient, int]]:
    """The FastAPI program by uvicorn, or by `words`: a client for it, and its pid."""
    uvicorn = (
        BIN / "python",
        "-m",
        "uvicorn",
        "--port",
        str(port),
        "--log-level",
        "error",
        "--timeout-keep-alive",
        "90",
    )
    command = words or (*uvicorn, "fastapi_app:app")
    limits = httpx.Limits(max_connections=None)
    base = f"http://127.0.0.1:{port}"
    with started(*command, env=env) as process:
        async with httpx.AsyncClient(base_url=base, limits=limits, timeout=PATIENCE, trust_env=False) as client:
            await until(lambda: _answers(port))
            yield client, process.pid


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/left", timeout=PATIENCE, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


async def read(client: httpx.AsyncClient, prompt: str) -> str:
    """The text of a reply. By a plain socket: 200 clients of httpx take more CPU than the server."""
    stream = await trio.open_tcp_stream("127.0.0.1", client.base_url.port or 80)
    async with stream:
        await stream.send_all(f"GET /chat?q={quote(prompt)} HTTP/1.0\r\n\r\n".encode())
        data = b"".join([piece async for piece in stream])
    head, _, body = data.decode().partition("\r\n\r\n")
    assert " 200 " in head, head
    return "".join(json.loads(line.removeprefix("data: ")) for line in body.splitlines() if line.startswith("data: "))


def answer(request: Request) -> Reply:
    if request.prompt == "tool" and not request.results:
        return Reply(calls=[("execute_command", {"command": "sleep 86"})])
    return Reply(WORDS, delay=0.5, gap=0.1)


async def test_two_hundred_streams_of_fastapi_and_fifty_disconnects(
    fake_model: FakeModels, tmp_path: Path, free_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_model.answer_with(answer)
    async with served(free_port, environment(fake_model.config_dir(tmp_path))) as (client, pid):
        await read(client, "first")
        texts: list[str] = []

        async def one(number: int) -> None:
            texts.append(await read(client, f"prompt {number}"))

        before, began = (await client.get("/left")).json(), time.perf_counter()
        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(one, number)
        seconds = time.perf_counter() - began
        left = (await client.get("/left")).json()
        assert texts == [WORDS] * 200
        assert left["runs"] == []
        with capsys.disabled():  # for the reader; no test depends on the speed of the machine
            cpu, load = left["cpu"] - before["cpu"], os.getloadavg()[0]
            print(f"\n200 streams of 0.9 s: {seconds:.1f} s, {cpu:.1f} s CPU of the server, load {load:.0f}")

        # Half of them hang up while a tool runs, half while the model speaks.
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(read, client, "tool" if number % 2 else "slow")
            server = psutil.Process(pid)
            await fake_model.arrived(201 + 50)
            await until(lambda: _sleeping(server))
            nursery.cancel_scope.cancel()
        await until(lambda: not _sleeping(server))
        with trio.fail_after(PATIENCE):
            while (await client.get("/left")).json()["runs"]:
                await trio.sleep(0.05)
        assert fake_model.cut > 0, "requests of clients that hung up were given up"


def _sleeping(server: psutil.Process) -> bool:
    found = []
    for process in server.children(recursive=True):
        try:
            found.append("sleep 86" in " ".join(process.cmdline()))
        except psutil.Error:
            continue
    return any(found)


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    """A graph that says what it is told."""
    file = tmp_path / "echo.yaml"
    file.write_text("name: echo\nstart: e\nnodes:\n  e: {type: end, output: '{{initial_prompt}}'}\n")
    return file


async def test_a_question_asked_over_http_outlives_the_process(tmp_path: Path, free_port: int) -> None:
    graph = tmp_path / "ask.yaml"
    graph.write_text(
        "name: ask\nstart: who\nnodes:\n"
        "  who: {type: approval, question: 'Ship it?', options: ['yes', 'no'], state_updates: {said: '{{choice}}'},"
        " routes: {'yes': end, 'no': end}, on_other: end}\n"
        "  end: {type: end, output: 'said {{said}}'}\n"
    )
    env = environment(tmp_path)
    async with served(free_port, env) as (client, pid):
        question = (await client.get("/ask", params={"graph": str(graph)})).json()["question"]
        os.kill(pid, signal.SIGKILL)
    async with served(free_port, env) as (client, _):
        answered = await client.get("/answer", params={"question": question, "value": "yes"})
        assert answered.json() == {"answered": True, "status": "done", "output": "said yes"}


async def test_each_of_four_workers_of_gunicorn_has_a_root(
    fake_model: FakeModels, tmp_path: Path, free_port: int
) -> None:
    fake_model.answer_with(lambda request: f"heard {request.prompt}")
    words = (BIN / "gunicorn", "-w", "4", "-b", f"127.0.0.1:{free_port}", "-k", "uvicorn.workers.UvicornWorker")
    quiet = ("--log-level", "error", "--preload", "fastapi_app:app")
    if not (INSTALLED / "embedding/lib").exists() or not _has("uvicorn.workers"):
        words = (*words[:-1], "uvicorn_worker.UvicornWorker")
    async with served(free_port, environment(fake_model.config_dir(tmp_path)), *words, *quiet) as (client, pid):
        texts: list[str] = []

        async def one(number: int) -> None:
            texts.append(await read(client, f"prompt {number}"))

        async with trio.open_nursery() as nursery:
            for number in range(40):
                nursery.start_soon(one, number)
        assert sorted(texts) == sorted(f"heard prompt {number}" for number in range(40))
        assert len(psutil.Process(pid).children()) >= 4


def _has(module: str) -> bool:
    found = subprocess.run([BIN / "python", "-c", f"import {module}"], capture_output=True, check=False)
    return found.returncode == 0


async def test_tasks_of_celery_run_in_its_prefork_children(echo: Path, tmp_path: Path) -> None:
    for name in ("queue", "results"):
        (tmp_path / name).mkdir()
    env = environment(tmp_path, WORK_GRAPH=str(echo), CELERY_DIRECTORY=str(tmp_path))
    worker = (BIN / "celery", "-A", "celery_app", "worker", "-P", "prefork", "-c", "2", "-l", "error")
    with started(*worker, env=env):
        done = await trio.run_process(
            [str(BIN / "python"), "celery_app.py"], env=env, cwd=PROGRAMS, capture_stdout=True
        )
    lines = [line.split() for line in done.stdout.decode().splitlines()]
    assert [words[1:] for words in lines] == [[f"task{number}"] * 3 for number in range(4)]
    assert all(int(words[0]) for words in lines)


async def test_children_of_multiprocessing_run_agents_however_they_are_started(echo: Path, tmp_path: Path) -> None:
    env = environment(tmp_path, WORK_GRAPH=str(echo))
    words = [str(BIN / "python"), "multiprocessing_program.py"]
    done = await trio.run_process(words, env=env, cwd=PROGRAMS, capture_stdout=True)
    expected = [f"{method} a a a b b b" for method in ("fork", "spawn", "forkserver")]
    assert done.stdout.decode().splitlines() == expected


async def test_cells_of_a_notebook_share_a_root_and_are_interrupted(
    fake_model: FakeModels, echo: Path, tmp_path: Path
) -> None:
    held = trio.Event()
    fake_model.answer_with(lambda request: Reply("late", hold=held))
    env = environment(fake_model.config_dir(tmp_path / "config"), IPYTHONDIR=str(tmp_path / "ipython"))
    words = [str(BIN / "python"), "notebook.py", str(echo)]
    with trio.fail_after(3 * PATIENCE):
        process = await trio.lowlevel.open_process(
            words, env=env, cwd=PROGRAMS, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        await fake_model.arrived(1)  # the cell waits for its model
        await process.stdin.send_all(b"interrupt\n")
        said = b"".join([piece async for piece in process.stdout]).decode()
        assert await process.wait() == 0
    assert said.split() == ["first", "hangs", "interrupted", *said.split()[3:]]
    assert said.split()[3] in ("KeyboardInterrupt", "CancelledError")
    assert said.split()[-3:] == ["left", "[]", "closed"]
