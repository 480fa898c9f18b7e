"""Hostile and hapless tools: each leaves a clear error and a living runtime."""

from __future__ import annotations

import random
import re
import resource
import subprocess
from pathlib import Path

import pytest
import trio
import trio.testing
from support.messages import says
from support.tool_bench import Bench
from support.waiting import PATIENCE, jump_when, open_descriptors

from callboard.actors.work.tools.files.call import file_tool
from callboard.actors.work.tools.files.call_process import MIB, CallLimits, impose, watch
from callboard.protocol.errors import ActorCancelled, ToolFailed
from callboard.supervisors import Actor, start_process


async def alive(bench: Bench) -> None:
    """The root still plays calls."""
    assert await bench.bash('main() { echo ok >> "$LLM_OUTPUT"; }') == {"output": "ok\n"}


async def test_an_endless_loop_is_ended_in_time(bench: Bench) -> None:
    file = bench.write("tools.py", "def run():\n    print('begun')\n    while True: pass\n")
    with pytest.raises(ToolFailed, match=says("work.tools.files.call._Call._follow", seconds="0.3")):
        await bench.call(bench.declare(file, "run"), timeout=0.3)
    await alive(bench)


async def test_one_that_ignores_sigterm_is_killed(
    bench: Bench, tmp_path: Path, nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    deaf = tmp_path / "deaf"
    file = bench.write(
        "tools.sh", f"main() {{ trap '' TERM; echo deaf >&2; : > {deaf}; while :; do sleep 100; done; }}"
    )
    nursery.start_soon(jump_when, mock_clock, deaf.exists, 60)
    with pytest.raises(ToolFailed, match=says("work.tools.files.call._Call._follow")) as failed:
        await bench.call(bench.declare(file), timeout=60)
    assert failed.value.stderr == "deaf\n"
    await alive(bench)


async def test_a_fork_bomb_is_put_out(bench: Bench) -> None:
    # Bounded, should the watch fail: 60 at most, for 20 seconds.
    file = bench.write(
        "tools.sh", 'main() { for i in {1..60}; do (exec sleep 20) & done; echo >> "$LLM_OUTPUT"; wait; }'
    )
    with pytest.raises(ToolFailed, match=says("work.tools.files.call._Call.check")):
        await bench.call(bench.declare(file), limits=CallLimits(processes=20))
    await alive(bench)


async def test_a_bomb_that_forks_from_its_forks_is_put_out(bench: Bench) -> None:
    # Each generation has half of what is left of a purse of 64, so it ends by itself.
    file = bench.write(
        "tools.py",
        """
        import os, time
        def run():
            left = 6
            while left:
                left -= 1
                os.fork()
            time.sleep(20)
        """,
    )
    with pytest.raises(ToolFailed, match=says("work.tools.files.call_process.watch.3")):
        await bench.call(bench.declare(file, "run"), limits=CallLimits(processes=20))
    await alive(bench)


async def test_a_flood_on_stdout_is_bounded_and_does_not_end_the_tool(bench: Bench) -> None:
    file = bench.write("tools.sh", 'main() { head -c 50000000 /dev/zero; echo through >> "$LLM_OUTPUT"; }')
    assert await bench.call(bench.declare(file)) == {"output": "through\n"}
    assert sum(map(len, bench.printed)) < 2 * MIB
    assert re.fullmatch(says("work.tools.files.call_process.Printed.show"), bench.printed[-1])


async def test_a_flood_on_stderr_ends_it(bench: Bench) -> None:
    file = bench.write("tools.sh", "main() { yes >&2; }")
    with pytest.raises(ToolFailed, match=says("work.tools.files.call._Call.check")):
        await bench.call(bench.declare(file), limits=CallLimits(stderr=100_000))
    with pytest.raises(ToolFailed, match=says("work.tools.files.call._Call.check")):
        await bench.call(bench.declare(file), limits=CallLimits(stderr_lines=1000))
    await alive(bench)


async def test_a_flood_into_the_result_ends_it(bench: Bench) -> None:
    file = bench.write("tools.sh", 'main() { cat /dev/zero >> "$LLM_OUTPUT"; }')
    with pytest.raises(ToolFailed, match=says("work.tools.files.call._Call.check")):
        await bench.call(bench.declare(file), limits=CallLimits(result_file=MIB, file_size=512 * MIB))
    await alive(bench)


async def test_no_file_grows_beyond_the_limit(bench: Bench) -> None:
    file = bench.write("tools.sh", 'main() { exec head -c 3000000 /dev/zero > "$LLM_TOOL_CACHE_DIR/big"; }')
    with pytest.raises(ToolFailed, match="SIGXFSZ: it wrote a file of more than 1 MiB"):
        await bench.call(bench.declare(file), limits=CallLimits(file_size=MIB))
    assert (bench.home.cache / "tools" / "t" / "big").stat().st_size == MIB


async def test_limits_are_on_before_the_first_line_runs(bench: Bench) -> None:
    file = bench.write(
        "tools.py",
        """
        import resource
        at_import = [resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_FSIZE)]
        def run():
            return at_import
        """,
    )
    ours = resource.getrlimit(resource.RLIMIT_CORE)
    said = await bench.call(bench.declare(file, "run"), limits=CallLimits(file_size=7 * MIB))
    assert said == [[0, 0], [7 * MIB, 7 * MIB]]
    assert resource.getrlimit(resource.RLIMIT_CORE) == ours


async def test_a_tool_that_deletes_its_own_directory_still_answers(bench: Bench) -> None:
    file = bench.write(
        "home/tools.py",
        "import os, shutil\ndef run():\n    shutil.rmtree(os.path.dirname(__file__))\n    return 'gone'\n",
    )
    declaration = bench.declare(file, "run")
    assert await bench.call(declaration) == {"output": "gone"}
    with pytest.raises(ToolFailed, match=says("work.tools.files.call.play")):
        await bench.call(declaration)


async def test_a_cancelled_call_leaves_nothing(bench: Bench) -> None:
    file = bench.write("tools.sh", "main() { sleep 1000 & setsid sleep 1000 & echo up; wait; }")
    with trio.move_on_after(60) as scope:
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                with pytest.raises(ActorCancelled):
                    await bench.call(bench.declare(file))

            nursery.start_soon(call)
            while not bench.printed:
                await trio.sleep(0.01)
            for child in bench.root.actor.children:
                await child.stop()
    assert not scope.cancelled_caught
    assert not bench.root.processes.live  # its reaper has found that nothing is left


def test_a_user_may_start_a_bounded_number_of_processes() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            impose(process.pid, CallLimits(processes=50))
            most, _ = resource.prlimit(process.pid, resource.RLIMIT_NPROC)
        finally:
            process.kill()
    assert 50 + 1024 < most < 50 + 1024 + 100_000
    impose(process.pid, CallLimits())  # gone: no error


async def test_a_process_that_was_missed_gets_its_limits_at_a_later_poll(me: Actor, nursery: trio.Nursery) -> None:
    process = await start_process(me, ["sh", "-c", "sleep 60 & wait"], name="missed")
    nursery.start_soon(watch, process, None, CallLimits(file_size=MIB), pytest.fail)
    with trio.fail_after(PATIENCE):
        while len(members := await process.members()) < 2:
            await trio.sleep(0.01)
        while {resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in members} != {(MIB, MIB)}:
            await trio.sleep(0.01)
    nursery.cancel_scope.cancel()


async def test_one_with_many_processes_within_the_limit_goes_on(bench: Bench) -> None:
    file = bench.write("tools.sh", 'main() { for i in {1..30}; do sleep 0.3 & done; wait; echo ok >> "$LLM_OUTPUT"; }')
    assert await bench.call(bench.declare(file), limits=CallLimits(processes=40)) == {"output": "ok\n"}


async def test_whenever_a_call_is_cancelled_nothing_is_left(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path_factory.mktemp("calls")
    monkeypatch.setenv("TMPDIR", str(place))
    file = bench.write("tools.sh", 'main() { sleep 1000 & read -r x; echo "$x" >> "$LLM_OUTPUT"; wait; }')
    tool = file_tool(bench.declare(file), bench.home)
    await alive(bench)
    before = open_descriptors()
    chance = random.Random(3)

    async def run(me: Actor) -> object:
        return await tool.run(me, {})

    with bench.root.questions.attach(Silent()):
        for _ in range(10):
            ref = bench.root.actor.spawn(run, link=False)
            await trio.sleep(chance.random() * 0.05)
            await ref.stop()
            assert bench.root.questions.open == ()
    assert not bench.root.processes.live
    assert list(place.glob("*/*")) == []
    assert open_descriptors() <= before, "others may have been closed meanwhile: garbage of earlier tests"


class Silent:
    """A front end at which nobody sits."""

    name = "silent"

    def asked(self, question: object) -> None: ...

    def closed(self, question_id: str, by: str) -> None: ...


async def test_without_files_left_a_call_fails_in_a_sentence_wherever_that_hits_it(bench: Bench) -> None:
    declaration = bench.declare(bench.write("tools.sh", "main() { :; }"))
    assert await bench.call(declaration) == "DONE"
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    told: list[str] = []
    while told.count("DONE") < 15:  # one more at a time, until there are enough for several calls
        resource.setrlimit(resource.RLIMIT_NOFILE, (3 + len(told), before[1]))
        try:
            told.append(await bench.call(declaration))
        except ToolFailed as failed:
            told.append(str(failed))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
    too_many = "this process has too many files open; raise `ulimit -n`, or run less at once"
    assert "Tool 't' can't be run: " + too_many in told
    for message in set(told) - {"DONE"}:
        assert re.fullmatch(rf"Tool 't' can't be run: (can't start '\S+': )?{too_many}", message), message
    await alive(bench)


async def test_a_look_that_can_not_be_taken_is_left_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([None, 5, None, 5])
    monkeypatch.setattr("callboard.actors.work.tools.files.call_process.running_tasks", lambda: next(looks, None))
    assert await bench.bash('main() { sleep 0.1; echo ok >> "$LLM_OUTPUT"; }') == {"output": "ok\n"}
    assert next(looks, None) is None  # it went on looking
