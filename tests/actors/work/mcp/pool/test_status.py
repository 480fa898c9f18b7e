"""A process that has servers can be asked how they are, and told to reload them, by other processes of its user."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from support.descendants import is_alive
from support.mcp_processes import McpProcesses, scripted, tiny
from support.messages import has_message, says
from support.waiting import PATIENCE, until

from callboard.actors.io.directories import socket_dir
from callboard.actors.io.temporary import sweep
from callboard.actors.work.mcp.pool import status
from callboard.actors.work.mcp.pool.status import ask_all
from callboard.supervisors import Root

STATUS = {"ask": "status"}


@pytest.fixture
async def mcp_processes(tmp_path: Path) -> AsyncIterator[McpProcesses]:
    with trio.fail_after(60):
        async with Root() as root:
            yield McpProcesses(root, tmp_path)
    assert list((tmp_path / "callboard").glob("*")) == []


def socket_path(directory: Path, pid: int) -> Path:
    """The path of a socket of another process."""
    path = directory / f"{pid}-0123456789ab" / f"mcp-{pid}.sock"
    path.parent.mkdir(parents=True)
    return path


async def up(mcp_processes: McpProcesses) -> Path:
    """Where the sockets are, now that there is one."""
    directory = mcp_processes.directory / "callboard"
    await until(lambda: list(directory.rglob("mcp-*.sock")))
    return directory


# --- what is told ----------------------------------------------------------------------------------------------


async def test_the_state_of_each_server_is_told(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(
        scripted("s"), tiny("own", share="per-agent"), tiny("cold", "c"), scripted("bad", "--exit", "3"), serving=True
    )
    with mcp_processes.scope() as scope, mcp_processes.scope("/other") as other:
        for each in (scope, other):
            await mcp_processes.call(each, "own")
        await mcp_processes.call(scope, "s", "echo", text="x")
        for _ in range(2):
            with pytest.raises(Exception, match=says("work.mcp.links.stdio.StdioLink._report_end.3", status="3…")):
                await mcp_processes.call(scope, "bad")
        (answer,) = await ask_all(await up(mcp_processes), STATUS)
        s, own, others, cold, bad = answer["servers"]
        assert answer["pid"] == os.getpid()
        assert answer["counters"]["spawned"] == 3
        assert answer["counters"]["failed_starts"] == 2
        assert [each["name"] for each in answer["servers"]] == ["s", "own", "own", "cold", "bad"]
        assert [each["state"] for each in answer["servers"]] == ["leased", "leased", "leased", "cold", "down"]
        assert (s["pid"], s["leases"], s["calls"], s["server"], s["by"]) == (
            mcp_processes.starts[2],
            1,
            1,
            "scripted",
            "",
        )
        assert s["rss"] > 1_000_000
        assert s["uptime"] > 0
        assert {own["by"], others["by"]} == {"run-1 /agent", "run-1 /other"}
        assert own["pid"] != others["pid"]
        assert (cold["pid"], cold["tools"]) == (None, None)
        assert has_message(bad["last_error"], "work.mcp.links.stdio.StdioLink._report_end.3", status="3…")
    await until(lambda: mcp_processes.servers.status()[0].state == "idle")


async def test_nothing_secret_is_told(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(tiny("s", "${TOKEN}", env={"KEY": "${TOKEN}"}))
    mcp_processes.secrets["TOKEN"] = "s3cret"
    with mcp_processes.scope() as scope:
        await mcp_processes.call(scope, "s")
        assert "s3cret" not in json.dumps(await ask_all(await up(mcp_processes), STATUS))
    for path in mcp_processes.directory.rglob("*"):
        assert "s3cret" not in path.name
        assert not path.is_file() or b"s3cret" not in path.read_bytes()


async def test_another_process_can_have_servers_reloaded(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(tiny("s"), tiny("bad", "x"))
    with mcp_processes.scope() as scope:
        first = await mcp_processes.call(scope, "s")
        directory = await up(mcp_processes)
        assert await ask_all(directory, {"ask": "reload", "server": "s"}) == [{"pid": os.getpid(), "reloaded": ["s"]}]
        assert await mcp_processes.call(scope, "s") != first
        (answer,) = await ask_all(directory, {"ask": "reload", "server": "nope"})
        assert "nope" in answer["error"]


# --- the socket -------------------------------------------------------------------------------------------------


def test_the_sockets_are_where_only_their_user_looks(tmp_path: Path) -> None:
    assert socket_dir({"XDG_RUNTIME_DIR": "/run/user/7"}, tmp_path) == Path("/run/user/7/callboard")
    for relative in ("", "here"):
        assert socket_dir({"XDG_RUNTIME_DIR": relative}, tmp_path) == tmp_path / "run"
    assert socket_dir({}, tmp_path) == tmp_path / "run"


async def test_only_their_user_may_enter(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(tiny("s"))
    (mcp_processes.directory / "callboard").mkdir(mode=0o755)
    with mcp_processes.scope() as scope:
        await mcp_processes.call(scope, "s")
        directory = await up(mcp_processes)
        (path,) = directory.rglob("*.sock")
        assert path.name == f"mcp-{os.getpid()}.sock"
        assert directory.stat().st_mode & 0o777 == 0o700
        assert path.stat().st_mode & 0o777 == 0o600


async def test_a_path_may_be_longer_than_the_kernel_takes(mcp_processes: McpProcesses) -> None:
    mcp_processes.environ["XDG_RUNTIME_DIR"] = str(mcp_processes.directory / ("long" * 40))
    mcp_processes.build(tiny("s"))
    with mcp_processes.scope() as scope:
        await mcp_processes.call(scope, "s")
        directory = mcp_processes.directory / ("long" * 40) / "callboard"
        await until(lambda: list(directory.rglob("mcp-*.sock")))
        assert len(await ask_all(directory, STATUS)) == 1


async def test_without_a_socket_all_else_works(mcp_processes: McpProcesses) -> None:
    (mcp_processes.directory / "file").write_text("")
    mcp_processes.environ["XDG_RUNTIME_DIR"] = str(mcp_processes.directory / "file")
    mcp_processes.build(tiny("s"))
    with mcp_processes.root.bus.listen(mcp_processes.events.append), mcp_processes.scope() as scope:
        await mcp_processes.call(scope, "s")
        await until(lambda: [data for data in mcp_processes.of("run.warning") if data.code == "mcp_status"])
    assert await ask_all(mcp_processes.directory / "file" / "callboard", STATUS) == []


async def test_two_roots_of_a_process_have_a_socket_each(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(tiny("s"))
    other = McpProcesses(mcp_processes.root, mcp_processes.directory)
    other.build(tiny("t"))
    with mcp_processes.scope() as one, other.scope() as two:
        await mcp_processes.call(one, "s")
        await other.call(two, "t")
        directory = await up(mcp_processes)
        await until(lambda: len(list(directory.rglob("*.sock"))) == 2)
        answers = await ask_all(directory, STATUS)
    assert sorted(answer["servers"][0]["name"] for answer in answers) == ["s", "t"]


async def test_what_dead_processes_left_is_removed(mcp_processes: McpProcesses) -> None:
    mcp_processes.build(tiny("s"))
    with mcp_processes.scope() as scope:
        await mcp_processes.call(scope, "s")
        directory = await up(mcp_processes)
        left = socket_path(directory, 1)
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(left))
        assert [answer["pid"] for answer in await ask_all(directory, STATUS)] == [os.getpid()]
        sweep({"XDG_RUNTIME_DIR": str(mcp_processes.directory)})
        assert not left.exists()
        assert len(await ask_all(directory, STATUS)) == 1


async def test_nobody_is_there_to_be_asked(tmp_path: Path) -> None:
    assert await ask_all(tmp_path / "nothing", STATUS) == []


@pytest.mark.parametrize("line", [b"{}\n", b"junk\n", b'{"ask":"kill"}\n', b"[1]\n", b"\xff\n", b'{"ask":"status"'])
@pytest.mark.sample(3)
async def test_a_request_that_makes_no_sense_is_refused(
    mcp_processes: McpProcesses, monkeypatch: pytest.MonkeyPatch, line: bytes
) -> None:
    mcp_processes.build(tiny("s"))
    with mcp_processes.scope() as scope:
        await mcp_processes.call(scope, "s")
        (path,) = (await up(mcp_processes)).rglob("*.sock")
        monkeypatch.chdir(path.parent)  # the kernel takes 107 bytes of a path
        async with await trio.open_unix_socket(path.name) as stream:
            await stream.send_all(line)
            stream.socket.shutdown(trio.socket.SHUT_WR)
            answer = json.loads(b"".join([data async for data in stream]))
        assert answer["error"]
        assert len(await ask_all(mcp_processes.directory / "callboard", STATUS)) == 1


async def test_askers_that_say_nothing_or_too_much_hold_nobody_up(
    mcp_processes: McpProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "ASK_WITHIN", 0.3)
    mcp_processes.build(tiny("s"))
    with mcp_processes.scope() as scope:
        await mcp_processes.call(scope, "s")
        (path,) = (await up(mcp_processes)).rglob("*.sock")
        monkeypatch.chdir(path.parent)  # the kernel takes 107 bytes of a path
        silent = [await trio.open_unix_socket(path.name) for _ in range(2 * status.ASKERS)]
        async with await trio.open_unix_socket(path.name) as loud:
            with pytest.raises(trio.BrokenResourceError):
                await loud.send_all(b"x" * 10_000_000)
        monkeypatch.setattr(status, "ASK_WITHIN", PATIENCE)  # an asker with a request may be slow here
        assert len(await ask_all(mcp_processes.directory / "callboard", STATUS)) == 1
        for stream in silent:
            await stream.aclose()


async def test_an_answer_that_crashes_is_told_and_others_are_heard(
    mcp_processes: McpProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    mcp_processes.build(tiny("s"))
    with mcp_processes.scope() as scope:
        await mcp_processes.call(scope, "s")
        directory = await up(mcp_processes)
        with monkeypatch.context() as broken:
            broken.setattr(mcp_processes.servers, "status", lambda: [][0])
            (answer,) = await ask_all(directory, STATUS)
            assert "IndexError" in answer["error"]
        (answer,) = await ask_all(directory, STATUS)
        assert "error" not in answer


async def test_a_process_that_ends_meanwhile_is_told_as_such(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as ending:
        ending.bind(str(socket_path(tmp_path, 77)))
        ending.listen()

        def end() -> None:
            asker, _ = ending.accept()
            asker.recv(1000)
            asker.close()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, end)
            assert await ask_all(tmp_path, {"ask": "reload"}) == [{"ended": True, "pid": 77}]


async def test_a_process_that_does_not_answer_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "ANSWER_WITHIN", 0.1)
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(socket_path(tmp_path, 77)))
        deaf.listen()
        (answer,) = await ask_all(tmp_path, STATUS)
    assert answer["pid"] == 77
    assert re.fullmatch(says("work.mcp.pool.status._ask", pid=77, ANSWER_WITHIN="0.1"), answer["error"])


# --- SIGKILL ----------------------------------------------------------------------------------------------------

PROGRAM = """
import sys, trio
from pathlib import Path
sys.path.insert(0, {tests!r})
from support.mcp_processes import McpProcesses, scripted, tiny
from callboard.supervisors import Root

async def main():
    async with Root() as root:
        mcp_processes = McpProcesses(root, Path({directory!r}))
        mcp_processes.environ["GRANDCHILD"] = {directory!r} + "/grandchild"
        server = scripted("s", "--grandchild", "--ignore-eof", "--deaf")
        mcp_processes.build(server, tiny("t"), tiny("idle", "x"), serving=True)
        with mcp_processes.scope() as scope:
            for name in mcp_processes.servers.config.names:
                await mcp_processes.call(scope, name)
            print("up", flush=True)
            await trio.sleep_forever()

trio.run(main)
"""


async def test_sigkill_of_us(tmp_path: Path) -> None:
    """All servers, and what they started, are gone; what is left of the socket is removed by the next command."""
    program = PROGRAM.format(tests=str(Path(__file__).parents[4]), directory=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == b"up\n"
        pids = [int(line) for line in (tmp_path / "starts").read_text().split()]
        pids.append(int((tmp_path / "grandchild").read_text()))
        assert all(map(is_alive, pids))
        directory = tmp_path / "callboard"
        (answer,) = await ask_all(directory, STATUS)
        assert [each["state"] for each in answer["servers"]] == ["leased"] * 3
        os.kill(host.pid, signal.SIGKILL)
    await until(lambda: not any(map(is_alive, pids)), seconds=5)
    assert len(list(directory.rglob("*.sock"))) == 1
    assert await ask_all(directory, STATUS) == []
    sweep({"XDG_RUNTIME_DIR": str(tmp_path)})
    assert list(directory.iterdir()) == []
