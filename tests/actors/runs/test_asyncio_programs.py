"""`callboard.Root` in programs on asyncio: one root for all runs, cancelled with the tasks that wait for them.

The programs are real: `asyncio.run` in a thread of its own, or in a process. The model server runs in the trio loop of
the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
from support.agent_runs import at_work
from support.fake_models import FakeModels, Reply
from support.messages import says
from support.starter import forked
from support.waiting import PATIENCE, POLL

import callboard
from callboard.protocol.agent import Agent
from callboard.protocol.errors import ShuttingDown, UsageError
from callboard.protocol.kernel.errors import ActorError, ActorFailed

GRAPH = "name: g\nstart: e\nnodes:\n  e: {type: end, output: 'said {{initial_prompt}}'}\n"
ASKS = """
name: asks
start: who
nodes:
  who: {type: input, question: "Who?", state_updates: {who: "{{input}}"}, next: end}
  end: {type: end, output: "{{who}}"}
"""
BOT = Agent(name="bot", instructions="Be brief.", can_ask_user=False)

tenant = contextvars.ContextVar("tenant", default="nobody")


@pytest.fixture
def config(fake_model: FakeModels, tmp_path: Path) -> Path:
    return fake_model.config_dir(tmp_path / "config")


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A graph that needs no model."""
    file = tmp_path / "echo.yaml"
    file.write_text(GRAPH)
    return file


async def program(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run an asyncio program in a thread, beside the model server of the test."""
    before = {thread.name for thread in threading.enumerate()}
    result = await trio.to_thread.run_sync(lambda: asyncio.run(main()))
    threads = {thread.name for thread in threading.enumerate()} - before
    assert {name for name in threads if not name.startswith("Trio thread")} == set()  # those of trio's cache are idle
    return result


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(POLL)


def under_way(root: callboard.Root) -> list[str]:
    """Paths of the actors of runs, and calls into the root's loop."""
    loop = root.kernel.loop
    assert loop is not None
    return [*at_work(root), *map(str, loop.calls)]


# --- runs -------------------------------------------------------------------------------------------------------------


async def test_two_hundred_runs_at_once_share_one_root(fake_model: FakeModels, config: Path) -> None:
    all_there = trio.Event()
    fake_model.answer_with(lambda request: Reply(f"to {request.prompt}", hold=all_there))

    async def main() -> list[callboard.Outcome]:
        async with callboard.Root(config_dir=config) as root:
            outcomes = await asyncio.gather(*(root.run(BOT, str(number)) for number in range(200)))
            assert under_way(root) == []
        return outcomes

    async def answer() -> None:
        await fake_model.arrived(200)
        all_there.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer)
        outcomes = await program(main)
    assert [outcome.output for outcome in outcomes] == [f"to {number}" for number in range(200)]


async def test_a_run_raises_what_it_raises_under_trio(graph: Path) -> None:
    async def main() -> None:
        async with callboard.Root(config_dir=graph.parent) as root:
            with pytest.raises(UsageError, match=says("protocol.requests.RunRequest.__post_init__")):
                await root.run(graph, compat="lokki")
            with pytest.raises(TypeError, match="colour"):
                await root.run(graph, colour="red")  # type: ignore[call-arg]  # the test
            assert (await root.run(graph, "hi")).output == "said hi"

    await program(main)


async def test_callboard_run_finds_the_root_of_the_block_and_opens_none_by_itself(graph: Path) -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match=says("runs.root.check_new_root", what="callboard.run")):
            await callboard.run(graph, "hi")
        async with callboard.Root(config_dir=graph.parent) as root:
            heard: list[str] = []
            with root.bus.listen(lambda event: heard.append(event.run)):
                outcome = await callboard.run(graph, "hi")
            assert outcome.run_id in heard
        with pytest.raises(UsageError, match=says("runs.root.check_new_root", what="callboard.run")):
            await callboard.run(graph, "hi")

    await program(main)


async def test_a_root_that_is_not_open_says_so(graph: Path) -> None:
    async def main() -> None:
        root = callboard.Root(config_dir=graph.parent)
        with pytest.raises(UsageError, match=says("runs.root.Root._loop")):
            await root.run(graph, "hi")
        async with root:
            pass
        with pytest.raises(ShuttingDown, match=says("supervisors.event_loops.ended")):
            await root.run(graph, "hi")

    await program(main)
    with pytest.raises(UsageError, match=says("runs.root.Root.__aenter__.2")):
        await trio.to_thread.run_sync(lambda: callboard.Root().__aenter__().send(None))


async def test_signals_stay_with_the_program(graph: Path) -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match=says("runs.root.Root.__aenter__")):
            async with callboard.Root(config_dir=graph.parent, signals=True):
                pass

    await program(main)


async def test_under_trio_a_run_beside_a_root_opens_no_second_one(graph: Path) -> None:
    async def outside(task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        with trio.CancelScope() as scope:
            async with callboard.Root(config_dir=graph.parent):
                task_status.started(scope)
                await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        scope = await nursery.start(outside)
        with pytest.raises(UsageError, match=says("runs.root.check_new_root.3", what="callboard.run")):
            await callboard.run(graph, "hi", config_dir=graph.parent)
        scope.cancel()
    assert (await callboard.run(graph, "hi", config_dir=graph.parent)).output == "said hi"


async def test_what_a_program_raises_in_the_block_comes_out_of_it(graph: Path) -> None:
    async def main() -> None:
        with pytest.raises(KeyError, match="mine"):
            async with callboard.Root(config_dir=graph.parent):
                raise KeyError("mine")

    await program(main)


async def test_runs_end_with_their_root(fake_model: FakeModels, config: Path) -> None:
    fake_model.answer_with(lambda _: Reply(hold=trio.Event()))

    async def main() -> list[callboard.Outcome]:
        async with callboard.Root(config_dir=config) as root:
            runs = [asyncio.create_task(root.run(BOT, "hi")) for _ in range(10)]
            await until(lambda: len(fake_model.requests) == 10)
            await root.close()
            return await asyncio.gather(*runs)

    assert {outcome.status for outcome in await program(main)} == {"cancelled"}
    await fake_model.until(lambda server: server.open == 0)


# --- cancellation -----------------------------------------------------------------------------------------------------


async def test_a_cancelled_caller_returns_when_nothing_of_its_run_is_left(fake_model: FakeModels, config: Path) -> None:
    fake_model.answer_with(lambda _: Reply(hold=trio.Event()))

    async def main() -> None:
        async with callboard.Root(config_dir=config) as root:
            runs = [asyncio.create_task(root.run(BOT, "hi")) for _ in range(50)]
            await until(lambda: len(fake_model.requests) == 50)
            for run in runs:
                run.cancel()
                run.cancel()  # an impatient caller changes nothing
            await asyncio.wait(runs)
            assert all(run.cancelled() for run in runs)
            assert under_way(root) == []
            assert asyncio.all_tasks() == {asyncio.current_task()}

    await program(main)
    await fake_model.until(lambda server: server.cut == 50)


async def test_a_cancelled_run_takes_its_processes_along(fake_model: FakeModels, config: Path) -> None:
    agent = Agent(name="sh", instructions="x", global_tools=("execute_command",), can_ask_user=False)
    fake_model.script(Reply(calls=[("execute_command", {"command": "sleep 86399.25"})]))

    def sleeps() -> list[int]:
        found = []
        for each in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                found += [each.pid] if "86399.25" in each.cmdline() else []
        return found

    async def main() -> None:
        async with callboard.Root(config_dir=config) as root:
            run = asyncio.create_task(root.run(agent, "hi", yes=True))
            await until(sleeps)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(run, 0)
            assert sleeps() == []
            assert under_way(root) == []

    await program(main)


async def test_the_end_of_the_caller_s_loop_ends_its_runs(fake_model: FakeModels, config: Path) -> None:
    """`asyncio.run` cancels all tasks; the root is another loop's."""
    fake_model.answer_with(lambda _: Reply(hold=trio.Event()))
    started = threading.Event()

    async def main(root: callboard.Root) -> None:
        run = asyncio.create_task(root.run(BOT, "hi"))
        await until(lambda: fake_model.requests)
        started.set()
        assert not run.done()

    async with callboard.Root(config_dir=config) as root:
        await trio.to_thread.run_sync(lambda: asyncio.run(main(root)))
        assert started.is_set()
        assert under_way(root) == []


async def test_a_root_that_crashes_ends_its_runs_and_raises_at_the_end_of_the_block(
    fake_model: FakeModels, config: Path
) -> None:
    fake_model.answer_with(lambda _: Reply(hold=trio.Event()))

    async def crash(me: Any) -> None:
        raise LookupError("a bug of ours")

    async def main() -> None:
        async with callboard.Root(config_dir=config) as root:
            run = asyncio.create_task(root.run(BOT, "hi"))
            await until(lambda: fake_model.requests)
            root.kernel.in_loop(lambda: root.kernel.spawn(crash, name="crash"))
            outcomes.append(await run)

    outcomes: list[callboard.Outcome] = []
    with pytest.raises(ActorFailed, match="a bug of ours"):
        await program(main)
    assert [outcome.status for outcome in outcomes] == ["cancelled"]


# --- tools and callbacks ----------------------------------------------------------------------------------------------


async def test_asyncio_functions_are_tools_in_the_caller_s_loop_and_context(
    fake_model: FakeModels, config: Path
) -> None:
    loops: list[object] = []

    async def whoami() -> str:
        """Who."""
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())
        return tenant.get()

    def whoami_sync() -> str:
        """Who."""
        return tenant.get()

    fake_model.answer_with(
        lambda request: ", ".join(request.results) or Reply(calls=[("whoami", {}), ("whoami_sync", {})])
    )

    async def main() -> None:
        async def as_tenant(name: str) -> str:
            tenant.set(name)
            return (await root.run(BOT, "hi", tools=[whoami, whoami_sync])).output

        async with callboard.Root(config_dir=config) as root:
            assert await asyncio.gather(as_tenant("ann"), as_tenant("bob")) == ["ann, ann", "bob, bob"]
            assert set(loops) == {asyncio.get_running_loop()}

    await program(main)


async def test_a_tool_may_start_runs_under_the_same_root(fake_model: FakeModels, config: Path) -> None:
    async def ask_another() -> str:
        """Ask."""
        return (await callboard.run(BOT, "inner")).output

    def ask_from_a_thread() -> str:
        """Ask."""
        return callboard.run_sync(BOT, "inner", root=root_of_all[0]).output

    def answer(request: Any) -> Reply | str:
        if request.prompt == "inner":
            return "42"
        return ", ".join(request.results) or Reply(calls=[("ask_another", {}), ("ask_from_a_thread", {})])

    fake_model.answer_with(answer)
    root_of_all: list[callboard.Root] = []

    async def main() -> str:
        async with callboard.Root(config_dir=config) as root:
            root_of_all.append(root)
            return (await root.run(BOT, "outer", tools=[ask_another, ask_from_a_thread])).output

    assert await program(main) == "42, 42"


async def test_an_asyncio_tool_is_cancelled_with_its_run_and_has_ended_by_then(
    fake_model: FakeModels, config: Path
) -> None:
    fake_model.script(Reply(calls=[("hang", {})]))
    steps: list[str] = []

    async def hang() -> None:
        """Hang."""
        steps.append("began")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            steps.append("cleaned up")

    async def main() -> None:
        async with callboard.Root(config_dir=config) as root:
            run = asyncio.create_task(root.run(BOT, "hi", tools=[hang]))
            await until(lambda: steps)
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            assert steps == ["began", "cleaned up"]
            assert asyncio.all_tasks() == {asyncio.current_task()}
            assert under_way(root) == []

    await program(main)


async def test_what_a_cancelled_tool_raises_is_nobody_s_business(
    fake_model: FakeModels, config: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fake_model.script(Reply(calls=[("hang", {})]))
    began: list[str] = []

    async def hang() -> None:
        """Hang."""
        began.append("hang")
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("while it was cleaning up")

    async def main() -> None:
        async with callboard.Root(config_dir=config) as root:
            run = asyncio.create_task(root.run(BOT, "hi", tools=[hang]))
            await until(lambda: began)
            run.cancel()
            await asyncio.wait([run])
            assert run.cancelled()

    await program(main)
    gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


async def test_an_asyncio_tool_ends_when_its_time_is_up(fake_model: FakeModels, config: Path) -> None:
    fake_model.script(Reply(calls=[("hang", {})]), "sorry")
    ended: list[str] = []

    async def hang() -> None:
        """Hang."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def main() -> callboard.Outcome:
        async with callboard.Root(config_dir=config) as root:
            return await root.run(BOT, "hi", tools=[callboard.function_tool(hang, timeout=2.0)])

    outcome = await program(main)
    assert outcome.output == "sorry"
    assert ended == ["cancelled"]
    assert fake_model.requests[1].results == [f'{{"tool_call_error":"{says_plain("hang", 2)}"}}']


def says_plain(tool: str, seconds: float) -> str:
    return f"Tool call '{tool}' was stopped: it did not finish within {seconds:g} s"


@pytest.mark.parametrize(
    "error", [ValueError("no"), SystemExit(2), asyncio.CancelledError("mine")], ids=["error", "exit", "cancelled"]
)
async def test_what_an_asyncio_tool_raises_is_the_error_of_its_call(
    fake_model: FakeModels, config: Path, error: BaseException
) -> None:
    fake_model.script(Reply(calls=[("fail", {})]), "sorry")

    async def fail() -> None:
        """Fail."""
        raise error

    async def main() -> str:
        async with callboard.Root(config_dir=config) as root:
            return (await root.run(BOT, "hi", tools=[fail])).output

    assert await program(main) == "sorry"
    assert "tool_call_error" in fake_model.requests[1].results[0]


async def test_events_are_heard_in_the_caller_s_loop_in_order_before_the_run_returns(
    fake_model: FakeModels, config: Path
) -> None:
    heard: list[int] = []
    contexts: list[object] = []

    async def main() -> None:
        def on_event(event: callboard.Event) -> None:
            heard.append(event.seq)
            contexts.append((asyncio.get_running_loop(), tenant.get()))

        async with callboard.Root(config_dir=config) as root:
            tenant.set("ann")
            await root.run(BOT, "hi", on_event=on_event)
            assert heard == list(range(1, len(heard) + 1))
            assert set(contexts) == {(asyncio.get_running_loop(), "ann")}

    await program(main)
    assert len(heard) > 5


async def test_an_exception_of_on_event_ends_the_run_and_is_raised(fake_model: FakeModels, config: Path) -> None:
    fake_model.answer_with(lambda _: Reply(hold=trio.Event()))
    heard: list[str] = []

    def on_event(event: callboard.Event) -> None:
        heard.append(event.kind)
        raise KeyError("mine")

    async def main() -> None:
        async with callboard.Root(config_dir=config) as root:
            with pytest.raises(KeyError, match="mine"):
                await root.run(BOT, "hi", on_event=on_event)
            assert under_way(root) == []

    await program(main)
    assert heard == ["run.started"]


async def test_another_callback_that_raises_is_reported(
    fake_model: FakeModels, config: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def on_history(turns: object) -> None:
        raise SystemExit(3)

    async def main() -> callboard.Outcome:
        async with callboard.Root(config_dir=config) as root:
            return await root.run(BOT, "hi", on_history=on_history)

    assert (await program(main)).status == "done"
    assert [record.levelname for record in caplog.records if record.name == "callboard.loops"] == ["ERROR"]


async def test_async_hooks_run_in_the_caller_s_loop(fake_model: FakeModels, config: Path) -> None:
    loops: list[object] = []

    async def before(told: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())

    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    fake_model.script(Reply(calls=[("add", {"a": 1, "b": 2})]), "3")

    async def main() -> None:
        async with callboard.Root(config_dir=config) as root:
            await root.run(BOT, "hi", tools=[add], hooks={"PreToolUse": [before]})
            assert loops == [asyncio.get_running_loop()]

    await program(main)


# --- questions --------------------------------------------------------------------------------------------------------


async def asked(root: callboard.Root) -> callboard.Question:
    await until(lambda: root.questions.open)
    return root.questions.open[0]


@pytest.mark.parametrize("way", ["method", "desk", "thread"])
async def test_questions_are_answered_from_any_thread(tmp_path: Path, way: str) -> None:
    (tmp_path / "graph.yaml").write_text(ASKS)

    async def main() -> str:
        async with callboard.Root(config_dir=tmp_path, wait_for_front_end=True) as root:
            run = asyncio.create_task(root.run(tmp_path / "graph.yaml"))
            question = await asked(root)
            answers = {
                "method": lambda value: root.answer(question.id, value),
                "desk": lambda value: asyncio.sleep(0, root.questions.answer(question.id, value)),
                "thread": lambda value: asyncio.to_thread(root.questions.answer, question.id, value),
            }
            assert await answers[way]("Ann")
            assert not await answers[way]("Bob")
            assert root.questions.open == ()
            return (await run).output

    assert await program(main) == "Ann"


async def test_a_front_end_of_an_asyncio_program_is_called_in_its_loop(tmp_path: Path) -> None:
    (tmp_path / "graph.yaml").write_text(ASKS)
    loops: list[object] = []

    class Clerk:
        name = "clerk"

        def __init__(self, root: callboard.Root) -> None:
            self.root = root

        def asked(self, question: callboard.Question) -> None:
            loops.append(asyncio.get_running_loop())
            self.task = asyncio.create_task(self.root.answer(question.id, "Ann", by=self.name))

        def closed(self, question_id: str, by: str) -> None:
            loops.append(by)

    async def main() -> None:
        async with callboard.Root(config_dir=tmp_path) as root:
            with root.questions.attach(Clerk(root)):
                assert (await root.run(tmp_path / "graph.yaml")).output == "Ann"
            assert loops == [asyncio.get_running_loop(), "clerk"]

    await program(main)


# --- other loops, threads and processes -------------------------------------------------------------------------------


async def test_a_root_may_be_called_from_any_event_loop(graph: Path) -> None:
    def from_asyncio(root: callboard.Root, word: str) -> str:
        return asyncio.run(root.run(graph, word)).output

    def from_trio(root: callboard.Root, word: str) -> str:
        return trio.run(root.run, graph, word).output

    def from_a_thread(root: callboard.Root, word: str) -> str:
        return callboard.run_sync(graph, word, root=root).output

    async def main() -> list[str]:
        async with callboard.Root(config_dir=graph.parent) as root:
            ways = (from_asyncio, from_trio, from_a_thread)
            return [*await asyncio.gather(*(asyncio.to_thread(way, root, way.__name__) for way in ways))]

    said = ["said from_asyncio", "said from_trio", "said from_a_thread"]
    assert await program(main) == said
    async with callboard.Root(config_dir=graph.parent) as root:
        for way, wanted in zip((from_asyncio, from_trio, from_a_thread), said, strict=True):
            assert await trio.to_thread.run_sync(way, root, way.__name__) == wanted


async def test_a_cancelled_task_of_another_trio_loop_leaves_nothing(fake_model: FakeModels, config: Path) -> None:
    fake_model.answer_with(lambda _: Reply(hold=trio.Event()))

    async def elsewhere(root: callboard.Root) -> bool:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(root.run, BOT, "hi")
                with trio.fail_after(PATIENCE):
                    while not fake_model.requests:
                        await trio.sleep(POLL)
                scope.cancel()
        return under_way(root) == []

    async with callboard.Root(config_dir=config) as root:
        assert await trio.to_thread.run_sync(trio.run, elsewhere, root)


PROGRAM = """
import asyncio, os, sys
import callboard

async def main():
    root = callboard.Root(config_dir={config!r})
    await root.__aenter__()
    {body}

{start}
"""


def script(tmp_path: Path, config: Path, body: str, start: str = "asyncio.run(main())") -> list[str]:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(config=str(config), body=body, start=start))
    return [*forked(file)]


def in_process(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


async def test_a_program_that_never_leaves_the_block_ends_all_the_same(fake_model: FakeModels, config: Path) -> None:
    fake_model.answer_with(lambda _: Reply(hold=trio.Event()))
    body = "asyncio.create_task(root.run(callboard.Agent(name='b', instructions='x'), 'hi')); await asyncio.sleep(0)"
    start = "loop = asyncio.new_event_loop(); loop.run_until_complete(main()); print('over')"
    argv = script(config.parent, config, body, start)
    done = await trio.to_thread.run_sync(
        lambda: subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False)
    )
    assert (done.returncode, done.stdout) == (0, "over\n")
    await fake_model.until(lambda server: server.open == 0)


FORKING = """
import warnings

async def child(root):
    try:
        await root.run({graph!r}, "hi")
    except Exception as error:
        print(type(error).__name__)
    await root.close()
    async with callboard.Root(config_dir={config!r}) as own:
        print((await own.run({graph!r}, "child")).output, flush=True)

async def parent(root):
    print((await root.run({graph!r}, "parent")).output)
    await root.close()

loop = asyncio.new_event_loop()
root = loop.run_until_complete(main())
warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: the process has threads
if (pid := os.fork()) == 0:
    asyncio.run(child(root))
    sys.exit(0)
os.waitpid(pid, 0)
loop.run_until_complete(parent(root))
"""


async def test_a_killed_program_s_question_is_answered_and_its_run_resumed_by_another(tmp_path: Path) -> None:
    (tmp_path / "graph.yaml").write_text(ASKS)
    body = f"""
    asyncio.create_task(root.run({str(tmp_path / "graph.yaml")!r}, durable=True, id="run-7"))
    while not root.questions.open:
        await asyncio.sleep(0.002)
    print(root.questions.open[0].id, flush=True)
    await asyncio.Event().wait()
"""
    argv = script(tmp_path, tmp_path, body)
    argv_patient = [argv[0], "-c", Path(argv[1]).read_text().replace("Root(", "Root(wait_for_front_end=True, ")]
    with subprocess.Popen(argv_patient, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        question = (await trio.to_thread.run_sync(process.stdout.readline)).strip()
        process.kill()

    async def main() -> callboard.Outcome:
        async with callboard.Root(config_dir=tmp_path) as root:
            assert not await root.answer("q-8-1", "nobody asks")
            assert await root.answer(question, "Ann")
            return await root.resume("run-7")

    assert (await program(main)).output == "Ann"


async def test_a_forked_child_is_told_that_the_root_is_its_parent_s(graph: Path) -> None:
    start = FORKING.format(graph=str(graph), config=str(graph.parent))
    argv = script(graph.parent, graph.parent, "return root", start)
    printed = await trio.to_thread.run_sync(in_process, argv)
    assert printed.splitlines() == [ActorError.__name__, "said child", "said parent"]


async def test_ctrl_c_ends_the_runs_of_an_asyncio_program(fake_model: FakeModels, config: Path) -> None:
    fake_model.answer_with(lambda _: Reply(hold=trio.Event()))
    body = "await root.__aexit__(None, None, None)\n    await block()"
    start = f"""
async def block():
    async with callboard.Root(config_dir={str(config)!r}) as root:
        await root.run(callboard.Agent(name='b', instructions='x'), 'hi')
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""
    with subprocess.Popen(script(config.parent, config, body, start), stdout=subprocess.PIPE, text=True) as process:
        await fake_model.arrived(1)
        os.kill(process.pid, signal.SIGINT)
        out, _ = await trio.to_thread.run_sync(process.communicate)
    assert (process.returncode, out) == (0, "interrupted\n")
    await fake_model.until(lambda server: server.open == 0)
