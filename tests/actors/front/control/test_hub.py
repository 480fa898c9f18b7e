"""Runs and actors in the hands of callers: what each may do, and what becomes of it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing
from support.agent_runs import AgentRunner
from support.control_hub import MadeRun, hub_of
from support.fake_models import Reply
from support.waiting import until

import callboard
from callboard.actors.front.control.hub import LONGEST_PAGE, Hub
from callboard.protocol.control.caller import LOCAL, Caller
from callboard.protocol.control.method_structs import StartRun
from callboard.protocol.control.resources import QuestionAsked, QuestionClosed
from callboard.protocol.errors import Conflict, Denied, InvalidFile, NotFound, Saturated, ShuttingDown, UsageError
from callboard.supervisors import Actor, Message, Ref


def _caller(subject: str, *scopes: str) -> Caller:
    return Caller(subject, frozenset(scopes))


ANNA = _caller("anna", "read:runs", "write:runs", "run:agents", "answer:questions")
BERT = _caller("bert", "read:runs", "write:runs", "run:agents", "answer:questions")
BLIND = _caller("blind", "run:agents", "answer:questions")

SLOW = """
start: one
nodes:
  one: {type: script, script: one.sh, next: two}
  two: {type: script, script: two.sh, next: end}
  end: {type: end, output: "{{x}}"}
"""


async def _asked(hub: Hub, run: str) -> str:
    await until(lambda: hub.questions(LOCAL, run))
    return hub.questions(LOCAL, run)[0].id


async def test_a_run_is_started_watched_answered_and_waited_for(agent_runner: AgentRunner, hub: Hub) -> None:
    info = await hub.start(ANNA, StartRun(target="asks", prompt="go", title="my run"))
    assert (info.owner, info.title, info.name, info.dialect, info.status) == (
        "anna",
        "my run",
        "asks",
        "graph",
        "running",
    )
    question = await _asked(hub, info.run)
    assert hub.get(ANNA, info.run).status == "waiting"
    assert hub.get(ANNA, info.run).open_questions == 1
    assert await hub.answer(ANNA, question, "Anna")
    assert not await hub.answer(ANNA, question, "too late")
    outcome = await hub.wait(ANNA, info.run)
    assert (outcome.status, outcome.exit_code) == ("done", 0)
    assert hub.get(ANNA, info.run).status == "done"
    assert [each.run for each in hub.list(ANNA)] == [info.run]
    assert hub.list(ANNA, status="failed") == []


class _Turns(trio.abc.Instrument):
    """How often a task of this name had its turn."""

    def __init__(self, name: str) -> None:
        self.name, self.count = name, 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task.name == self.name


async def test_who_waits_for_a_run_is_woken_by_its_end_and_by_no_other_event(
    agent_runner: AgentRunner, hub: Hub
) -> None:
    turns = _Turns("who waits")
    info = await hub.start(ANNA, StartRun(target="asks", prompt="go"))
    question = await _asked(hub, info.run)
    seen = hub.get(ANNA, info.run).seq
    ends: list[str] = []

    async def wait() -> None:
        ends.append((await hub.wait(ANNA, info.run)).status)

    trio.lowlevel.add_instrument(turns)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, name=turns.name)
        await trio.testing.wait_all_tasks_blocked()
        assert await hub.answer(ANNA, question, "Anna")
    trio.lowlevel.remove_instrument(turns)
    assert ends == ["done"]
    assert hub.get(ANNA, info.run).seq > seen + 2, "several events came meanwhile"
    assert turns.count == 2, "one turn to begin, one at the end"


async def test_pages_of_runs_are_bounded_in_bytes_and_together_they_are_all(root: callboard.Root, hub: Hub) -> None:
    for number in range(150):
        MadeRun(root, f"run-{number:03}").end(output="é" * 30_000)
    found: list[str] = []
    before, pages = None, 0
    while pages == 0 or before is not None:
        page, before = hub.page(LOCAL, limit=1000, before=before)
        assert len(msgspec.json.encode(page)) <= LONGEST_PAGE
        assert {len(info.output) for info in page} == {2_000}
        found += [info.run for info in page]
        pages += 1
    assert pages > 1
    assert found == [f"run-{number:03}" for number in reversed(range(150))]
    page, before = hub.page(LOCAL, limit=10)
    assert (len(page), before) == (10, page[-1].run)


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (StartRun(target="nobody"), UsageError),
        (StartRun(target="broken"), InvalidFile),
        (StartRun(target="asks", max_turns=-1), UsageError),
        (StartRun(target="asks", compat="dos"), UsageError),
    ],
)
async def test_what_can_not_start_leaves_nothing(
    agent_runner: AgentRunner, hub: Hub, wanted: StartRun, error: type[Exception]
) -> None:
    agent_runner.agent("start: gone\nnodes: {}", "broken")
    with pytest.raises(error):
        await hub.start(LOCAL, wanted)
    assert hub.list(LOCAL) == []
    assert hub.under_way == 0
    assert not [path for path in hub.logs.directory.iterdir() if path.name.startswith("run-")]


@pytest.mark.parametrize(
    "wanted",
    [
        StartRun(target="/etc/passwd"),
        StartRun(target="../asks"),
        StartRun(target=".."),
        StartRun(target="asks.yaml"),
        StartRun(target="asks\0"),
        StartRun(target="asks", files=["/etc/passwd"]),
        StartRun(target="asks", attach=["/etc/passwd"]),
    ],
)
async def test_paths_are_for_those_who_may_read_files_here(
    agent_runner: AgentRunner, hub: Hub, wanted: StartRun
) -> None:
    with pytest.raises(Denied, match="run:files"):
        await hub.start(ANNA, wanted)


async def test_who_may_not_answer_may_not_agree_beforehand(agent_runner: AgentRunner, hub: Hub) -> None:
    starter = _caller("carl", "run:agents")
    for wanted in (
        StartRun(target="asks", yes=True),
        StartRun(target="asks", allow=["fs_write"]),
        StartRun(target="asks", answers={"ask": "me"}),
        StartRun(target="asks", answers=["me"]),
        StartRun(target="asks", answers=["me"], session="s1"),
    ):
        with pytest.raises(Denied, match="answer:questions"):
            await hub.start(starter, wanted)


async def test_a_run_of_somebody_else_is_denied_or_not_there(agent_runner: AgentRunner, hub: Hub) -> None:
    info = await hub.start(ANNA, StartRun(target="asks"))
    question = await _asked(hub, info.run)
    path = f"/{info.run}"
    for call in (hub.get, hub.cancel, hub.subscribe, hub.graph_of, hub.questions, hub.actors.tree):
        with pytest.raises(Denied):
            call(BERT, info.run)
    for call in (hub.actors.pause, hub.actors.resume, hub.actors.cancel_actor):
        with pytest.raises(Denied):
            call(BERT, path)
    with pytest.raises(Denied):
        await hub.actors.inspect(BERT, path)
    with pytest.raises(Denied):
        await hub.answer(BERT, question, "Bert")
    with pytest.raises(NotFound):
        hub.get(BLIND, info.run)
    with pytest.raises(NotFound):
        await hub.answer(BLIND, question, "?")
    assert hub.list(BERT) == []
    assert hub.questions(BERT) == []
    assert hub.actors.tree(BERT) == []
    assert hub.cancel(LOCAL, info.run)
    assert (await hub.wait(LOCAL, info.run)).status == "cancelled"
    assert not hub.cancel(LOCAL, info.run)
    with pytest.raises(Denied):
        hub.get(BERT, info.run)


async def test_who_lacks_a_scope_is_told_which(agent_runner: AgentRunner, hub: Hub) -> None:
    nobody = _caller("nobody")
    with pytest.raises(Denied, match="run:agents"):
        await hub.start(nobody, StartRun(target="asks"))
    for call, scope in (
        (lambda: hub.list(nobody), "read:runs"),
        (lambda: hub.actors.tree(nobody), "read:runs"),
        (lambda: hub.mcp_status(ANNA), "admin:mcp"),
    ):
        with pytest.raises(Denied, match=scope):
            call()
    with pytest.raises(Denied, match="read:agents"):
        await hub.targets(nobody)
    with pytest.raises(Denied, match="answer:questions"):
        await hub.answer(nobody, "q1", "x")
    with pytest.raises(Denied, match="write:runs"):
        await hub.resume(nobody, "run-1")


async def test_who_starts_a_run_may_go_away(agent_runner: AgentRunner, hub: Hub) -> None:
    with trio.move_on_after(0) as impatient:
        await hub.start(LOCAL, StartRun(target="asks"))
    assert impatient.cancelled_caught
    await trio.testing.wait_all_tasks_blocked()
    for begun in hub.list(LOCAL):  # trio may have let it begin just before; then it goes on as any other
        assert begun.status in ("running", "waiting")
        hub.cancel(LOCAL, begun.run)
    await until(lambda: not hub.under_way)
    info = await hub.start(LOCAL, StartRun(target="asks"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hub.wait, LOCAL, info.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    await hub.answer(LOCAL, await _asked(hub, info.run), "x")
    assert (await hub.wait(LOCAL, info.run)).status == "done"


async def test_no_more_runs_than_may_be(agent_runner: AgentRunner, root: callboard.Root, tmp_path: Path) -> None:
    async with hub_of(root, tmp_path / "few", max_runs=1) as hub:
        info = await hub.start(LOCAL, StartRun(target="asks"))
        with pytest.raises(Saturated):
            await hub.start(LOCAL, StartRun(target="asks"))
        hub.cancel(LOCAL, info.run)
        await until(lambda: not hub.under_way)
        hub.closing = True
        with pytest.raises(ShuttingDown):
            await hub.start(LOCAL, StartRun(target="asks"))


async def test_runs_that_are_under_way_at_the_end_have_an_end_in_their_log(
    agent_runner: AgentRunner, root: callboard.Root, tmp_path: Path
) -> None:
    async with hub_of(root, tmp_path / "end") as hub:
        runs = [(await hub.start(LOCAL, StartRun(target="asks"))).run for _ in range(5)]
    async with hub_of(root, tmp_path / "end") as hub:
        assert {hub.get(LOCAL, run).status for run in runs} == {"cancelled"}


async def test_runs_of_others_under_the_same_root_are_there_as_well(agent_runner: AgentRunner, hub: Hub) -> None:
    outcome = await agent_runner.run(target="asks", answers=["x"])
    assert hub.get(LOCAL, outcome.run_id).owner == "local"
    assert (await hub.wait(LOCAL, outcome.run_id)).to_wire() == outcome.to_wire()


async def test_lists_are_read_page_by_page(root: callboard.Root, hub: Hub) -> None:
    runs = [MadeRun(root, f"run-{number}") for number in range(7)]
    found: list[str] = []
    while page := hub.list(LOCAL, limit=3, before=found[-1] if found else None):
        found += [info.run for info in page]
    assert found == [f"run-{number}" for number in reversed(range(7))]
    for run in runs:
        run.end()


async def test_a_run_that_is_over_can_be_removed(root: callboard.Root, hub: Hub) -> None:
    run = MadeRun(root, "run-old")
    with pytest.raises(Conflict):
        await hub.delete(LOCAL, run.id)
    run.end()
    await hub.delete(LOCAL, run.id)
    with pytest.raises(NotFound):
        hub.get(LOCAL, run.id)
    await hub.logs.flush()
    assert not (hub.logs.directory / run.id).exists()


async def test_a_paused_run_begins_no_node_and_a_resumed_one_goes_on(
    agent_runner: AgentRunner, hub: Hub, tmp_path: Path
) -> None:
    mark = tmp_path / "marks"
    one = f"echo one >> {mark}; while [ ! -e {mark}.go ]; do sleep 0.01; done; echo '{{}}'"
    agent_runner.agent(SLOW, "slow", one=one, two=f'echo two >> {mark}; echo \'{{"x": "done"}}\'')
    info = await hub.start(LOCAL, StartRun(target="slow"))
    await until(mark.exists)
    path = f"/{info.run}/slow"
    assert hub.actors.pause(LOCAL, path)
    assert not hub.actors.pause(LOCAL, path)
    paused = {actor.path: actor.paused for actor in hub.actors.tree(LOCAL, info.run)}
    assert paused[f"/{info.run}"] is False
    assert all(held for where, held in paused.items() if where.startswith(path))
    Path(f"{mark}.go").touch()
    await until(lambda: any(actor.name == "two" for actor in hub.actors.tree(LOCAL, info.run)))
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert mark.read_text() == "one\n"
    assert hub.actors.resume(LOCAL, path)
    assert not hub.actors.resume(LOCAL, path)
    assert (await hub.wait(LOCAL, info.run)).output == "done"
    kinds = [event.kind for event in await hub.events(LOCAL, info.run)]
    assert kinds.count("actor.paused") == kinds.count("actor.resumed") == 1


async def test_what_a_person_writes_is_read_before_the_next_request(agent_runner: AgentRunner, hub: Hub) -> None:
    agent_runner.plain("instructions: be brief\ncan_ask_user: true", "clerk")
    agent_runner.models.script(Reply(calls=[("user__input", {"question": "How?"})]), "as you like")
    info = await hub.start(LOCAL, StartRun(target="clerk", prompt="begin"))
    question = await _asked(hub, info.run)
    path = f"/{info.run}/clerk"
    await hub.actors.send(ANNA_ADMIN, path, "and in French, please")
    with pytest.raises(UsageError):
        await hub.actors.send(LOCAL, path, " ")
    with pytest.raises(Conflict):
        await hub.actors.send(LOCAL, f"/{info.run}", "hello?")
    await hub.answer(LOCAL, question, "well")
    assert (await hub.wait(LOCAL, info.run)).output == "as you like"
    said = agent_runner.models.requests[-1].json["messages"]
    assert said[-1] == {"role": "user", "content": "and in French, please"}
    events = [msgspec.json.decode(event.data) for event in await hub.events(LOCAL, info.run)]
    (told,) = [event["data"] for event in events if event["kind"] == "agent.told"]
    assert told == {"agent": "clerk", "text": "and in French, please", "by": "Anna"}
    with pytest.raises(NotFound):
        await hub.actors.send(LOCAL, path, "too late")


ANNA_ADMIN = Caller("anna", frozenset({"*"}), name="Anna")


async def test_an_actor_is_looked_at_closely(agent_runner: AgentRunner, hub: Hub) -> None:
    info = await hub.start(LOCAL, StartRun(target="asks"))
    await _asked(hub, info.run)
    detail = await hub.actors.inspect(LOCAL, f"/{info.run}/asks/ask")
    assert (detail.kind, detail.state, detail.doing, detail.parent) == ("node", "waiting", "ask", f"/{info.run}/asks")
    assert "ask_person" in detail.stack
    recent = [json.loads(bytes(event))["kind"] for event in detail.recent]
    assert recent == ["actor.spawned", "node.entered", "question.asked", "actor.waiting"]
    kinds = {actor.path: actor.kind for actor in hub.actors.tree(LOCAL, info.run)}
    assert kinds == {f"/{info.run}": "run", f"/{info.run}/asks": "graph", f"/{info.run}/asks/ask": "node"}
    with pytest.raises(NotFound):
        await hub.actors.inspect(LOCAL, f"/{info.run}/nobody")
    with pytest.raises(NotFound):
        await hub.actors.inspect(LOCAL, "/")
    assert (await hub.actors.inspect(LOCAL, "/control")).run == ""
    with pytest.raises(Denied):
        hub.actors.cancel_actor(LOCAL, "/control")
    with pytest.raises(NotFound):
        await hub.actors.inspect(ANNA, "/control")
    assert hub.actors.cancel_actor(LOCAL, f"/{info.run}/asks/ask")
    assert (await hub.wait(LOCAL, info.run)).status == "failed"


async def test_changes_of_the_tree_are_gathered(agent_runner: AgentRunner, hub: Hub) -> None:
    with hub.actors.watch_tree(LOCAL, None, 0.02) as changes:
        info = await hub.start(LOCAL, StartRun(target="asks"))
        with trio.fail_after(60):
            first = await anext(changes)
        assert f"/{info.run}/asks/ask" in [actor.path for actor in first.changed]
        await hub.answer(LOCAL, await _asked(hub, info.run), "x")
        gone: set[str] = set()
        with trio.fail_after(60):
            while f"/{info.run}" not in gone:
                gone.update((await anext(changes)).gone)
    assert not hub.actors._watches


class Note(Message, frozen=True):
    pass


async def test_messages_sent_are_counted_while_the_tree_is_watched(agent_runner: AgentRunner, hub: Hub) -> None:
    async def sink(me: Actor) -> None:
        async for _ in me:
            pass

    async def source(me: Actor, to: Ref) -> None:
        async for _ in me:
            await to.tell(Note())

    kernel = agent_runner.root.kernel
    to = kernel.spawn(sink)
    ref = kernel.spawn(source, to)

    async def sent() -> dict[str, int]:
        await ref.tell(Note())
        await trio.testing.wait_all_tasks_blocked()
        return {actor.name: actor.sent for actor in hub.actors.tree(LOCAL, None) if actor.name in ("sink", "source")}

    assert await sent() == {"sink": 0, "source": 0}
    with hub.actors.watch_tree(LOCAL, None, 0.02):
        assert await sent() == {"sink": 0, "source": 1}
        with hub.actors.watch_tree(LOCAL, None, 0.02):
            assert await sent() == {"sink": 0, "source": 2}
        assert await sent() == {"sink": 0, "source": 3}
    assert kernel.sent is None


async def test_a_watcher_hears_of_its_own_runs_only(agent_runner: AgentRunner, hub: Hub) -> None:
    with hub.actors.watch_tree(BERT, None, 0.02) as changes, hub.watch_questions(BERT) as questions:
        info = await hub.start(ANNA, StartRun(target="asks"))
        await _asked(hub, info.run)
        mine = await hub.start(BERT, StartRun(target="asks"))
        with trio.fail_after(60):
            change = await anext(changes)
            asked = await anext(questions)
        assert {actor.run for actor in change.changed} == {mine.run}
        assert isinstance(asked, QuestionAsked)
        assert asked.question["run"] == mine.run


async def test_the_first_answer_wins_and_the_others_are_told(agent_runner: AgentRunner, hub: Hub) -> None:
    info = await hub.start(LOCAL, StartRun(target="asks"))
    question = await _asked(hub, info.run)
    with hub.watch_questions(LOCAL) as one, hub.watch_questions(LOCAL) as two:
        assert [(await anext(feed)).question["id"] for feed in (one, two)] == [question, question]
        named = Caller("local", frozenset({"*"}), name="Zoe")
        assert [await hub.answer(named, question, "Zoe"), await hub.answer(LOCAL, question, "me")] == [True, False]
        for feed in (one, two):
            closed = await anext(feed)
            assert isinstance(closed, QuestionClosed)
            assert (closed.question, closed.by) == (question, "Zoe")
    assert (await hub.wait(LOCAL, info.run)).status == "done"


async def test_what_can_be_started_is_listed_with_what_is_wrong_with_it(agent_runner: AgentRunner, hub: Hub) -> None:
    agent_runner.agent("start: gone\nnodes: {}", "broken")
    agent_runner.plain("instructions: x\nconversation_starters: [hi, 'how?']", "clerk")
    targets = {target.name: target for target in await hub.targets(LOCAL)}
    assert (targets["asks"].dialect, targets["asks"].source, targets["asks"].problem) == ("graph", "config", "")
    assert targets["broken"].problem
    assert targets["clerk"].conversation_starters == ["hi", "how?"]
    assert targets["coder"].source == "library"


async def test_a_run_can_be_drawn(agent_runner: AgentRunner, hub: Hub) -> None:
    info = await hub.start(LOCAL, StartRun(target="asks"))
    drawn = hub.graph_of(LOCAL, info.run)
    assert [node.id for node in drawn.nodes] == ["ask", "end"]
    assert [(edge.source, edge.target) for edge in drawn.edges] == [("ask", "end")]
    agent_runner.plain("instructions: x", "clerk")
    agent_runner.models.script("yes")
    clerk = await hub.start(LOCAL, StartRun(target="clerk", prompt="?"))
    assert [node.type for node in hub.graph_of(LOCAL, clerk.run).nodes] == ["agent"]
    await hub.wait(LOCAL, clerk.run)
    told = hub.get(LOCAL, clerk.run)
    assert told.input_tokens > 0
    assert told.model
