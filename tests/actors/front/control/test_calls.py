"""What models saw and said, kept beside the log of a run and given to those who may read it."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import trio
from support.agent_runs import AgentRunner
from support.control_hub import Client, hub_of
from support.fake_models import FakeModels, Reply, Request
from support.messages import says
from support.waiting import until

import callboard
from callboard.actors.front.control.hub import Hub
from callboard.actors.front.control.run_records import call_of, calls_of
from callboard.actors.io.secret_redaction import handed_out
from callboard.actors.work.models import recorder
from callboard.protocol.control.caller import LOCAL, Caller
from callboard.protocol.control.method_structs import StartRun
from callboard.protocol.errors import Denied, NotFound, UsageError

TWO_NODES = """
start: plan
nodes:
  plan: {type: llm, instructions: Plan., prompt: "plan {{initial_prompt}}", temperature: 0.25,
         state_updates: {plan: "{{output}}"}, next: write}
  write: {type: llm, prompt: "write {{plan}}", state_updates: {text: "{{output}}"}, next: end}
  end: {type: end, output: "{{text}}"}
"""

LEAD = """
instructions: You lead.
can_spawn_agents: true
"""


@pytest.fixture
async def keeping(root: callboard.Root, tmp_path: Path) -> AsyncIterator[Hub]:
    """A hub that keeps what models see."""
    async with hub_of(root, tmp_path / "kept", keep_requests=True) as hub:
        yield hub


async def played(hub: Hub, target: str, prompt: str = "go") -> str:
    """The id of a run that has ended."""
    info = await hub.start(LOCAL, StartRun(target=target, prompt=prompt, yes=True))
    with trio.fail_after(60):
        await hub.wait(LOCAL, info.run)
    return info.run


def files_of(hub: Hub, run: str) -> list[Path]:
    return sorted((hub.logs.directory / run).glob("requests.*.jsonl"))


async def test_each_call_of_an_agent_is_kept_with_what_the_model_saw_and_said(
    keeping: Hub, agent_runner: AgentRunner, fake_model: FakeModels
) -> None:
    agent_runner.plain("instructions: You are brief.\nglobal_tools: [fs_ls]", name="clerk")
    fake_model.script(Reply(text="looking", calls=[("fs_ls", {"path": "."})], reasoning="hm"), Reply(text="done"))
    run = await played(keeping, "clerk", "what is there?")
    page = await calls_of(keeping, LOCAL, run)
    assert [(call.number, call.status, call.calls, call.messages, call.tries) for call in page.calls] == [
        (1, "answered", ["fs_ls"], 1, 1),
        (2, "answered", [], 3, 1),
    ]
    assert (page.next, page.dropped) == (None, 0)
    first, second = page.calls
    assert (first.actor, first.model, first.input_tokens) == (f"/{run}/clerk", "fake:model", 10)
    assert first.started.endswith("Z")
    call = await call_of(keeping, LOCAL, run, 1)
    sent = fake_model.requests[0].json
    assert call.request.system == sent["messages"][0]["content"]
    assert call.request.messages == [{"role": "user", "content": "what is there?"}]
    offered = [tool["function"] for tool in sent["tools"]]
    assert [(tool["name"], tool["parameters"]) for tool in call.request.tools] == [
        (tool["name"], tool["parameters"]) for tool in offered
    ]
    assert call.reply is not None
    assert (call.reply.text, call.reply.stop) == ("looking", "tools")
    assert [(each.name, each.arguments) for each in call.reply.tool_calls] == [("fs_ls", {"path": "."})]
    last = await call_of(keeping, LOCAL, run)
    assert last.number == second.number == 2
    assert [turn["role"] for turn in last.request.messages] == ["user", "assistant", "tool"]
    assert last.request.messages[2]["name"] == "fs_ls"
    assert last.reply is not None
    assert last.reply.text == "done"


async def test_the_id_of_a_call_is_that_of_its_events(keeping: Hub, agent_runner: AgentRunner) -> None:
    agent_runner.plain("", name="clerk")
    run = await played(keeping, "clerk")
    (call,) = (await calls_of(keeping, LOCAL, run)).calls
    events = [event.data for event in await keeping.events(LOCAL, run) if event.kind.startswith("llm.")]
    assert events
    assert all(f'"id":"{call.id}"'.encode() in event for event in events)


async def test_the_nodes_of_a_graph_ask_each_for_itself(
    keeping: Hub, agent_runner: AgentRunner, fake_model: FakeModels
) -> None:
    agent_runner.agent(TWO_NODES)
    fake_model.script("the plan", "the text")
    run = await played(keeping, "g", "tea")
    page = await calls_of(keeping, LOCAL, run)
    assert [call.actor.rpartition("/")[2] for call in page.calls] == ["plan", "write"]
    one = await calls_of(keeping, LOCAL, run, actor=page.calls[1].actor)
    assert [call.number for call in one.calls] == [2]
    plan = await call_of(keeping, LOCAL, run, 1)
    assert (plan.request.system, plan.request.messages[0]["content"]) == ("Plan.", "plan tea")
    assert plan.request.parameters["temperature"] == 0.25
    assert (await call_of(keeping, LOCAL, run, 2)).request.messages[0]["content"] == "write the plan"


async def test_the_calls_of_spawned_agents_are_the_run_s_and_below_who_spawned_them(
    keeping: Hub, agent_runner: AgentRunner, fake_model: FakeModels
) -> None:
    agent_runner.plain(LEAD, name="lead")
    agent_runner.plain("instructions: You explore.", name="explore")

    def answer(request: Request) -> Reply | str:
        if "You explore." in request.system:
            return "found it"
        if not request.results:
            return Reply(calls=[("agent__spawn", {"agent": "explore", "prompt": "find it"})])
        if len(request.results) == 1:
            return Reply(calls=[("agent__collect", {"id": request.results[0].split('"id"')[1].split('"')[1]})])
        return "all done"

    fake_model.answer_with(answer)
    run = await played(keeping, "lead")
    calls = (await calls_of(keeping, LOCAL, run)).calls
    assert {call.actor.rpartition("/")[2] for call in calls} == {"lead", "explore"}
    assert len((await calls_of(keeping, LOCAL, run, actor=f"/{run}/lead")).calls) == len(calls)
    (child,) = [call for call in calls if call.actor.endswith("/explore")]
    shown = await call_of(keeping, LOCAL, run, child.number)
    assert shown.request.messages[0]["content"].endswith("find it")
    assert shown.reply is not None
    assert shown.reply.text == "found it"


async def test_a_call_that_was_tried_again_says_why_and_one_that_failed_too(
    keeping: Hub, agent_runner: AgentRunner, fake_model: FakeModels
) -> None:
    agent_runner.plain("", name="clerk")
    fake_model.script(Reply(status=500, error="oops"), "there", Reply(status=400, error="too long"))
    run = await played(keeping, "clerk")
    call = await call_of(keeping, LOCAL, run)
    assert (call.tries, call.status) == (2, "answered")
    assert "oops" in call.failures[0].error
    call = await call_of(keeping, LOCAL, await played(keeping, "clerk"))
    assert (call.status, call.reply) == ("failed", None)
    assert "too long" in call.error


async def test_the_model_that_answers_for_another_has_a_call_of_its_own(
    keeping: Hub, agent_runner: AgentRunner, fake_model: FakeModels
) -> None:
    agent_runner.plain("model: [fake:one, fake:two]", name="clerk")
    fake_model.script(*[Reply(status=429, error="insufficient_quota")], "there")
    run = await played(keeping, "clerk")
    calls = (await calls_of(keeping, LOCAL, run)).calls
    assert [(call.model, call.status) for call in calls] == [("fake:one", "failed"), ("fake:two", "answered")]
    assert calls[0].id == calls[1].id


async def test_a_call_under_way_is_shown_without_a_reply_and_one_that_was_cut_off_stays_so(
    keeping: Hub, agent_runner: AgentRunner, fake_model: FakeModels
) -> None:
    agent_runner.plain("", name="clerk")
    fake_model.answer_with(lambda _: Reply(hold=trio.Event()))
    info = await keeping.start(LOCAL, StartRun(target="clerk", prompt="go"))
    await fake_model.arrived(1)
    call = await call_of(keeping, LOCAL, info.run)
    assert (call.status, call.reply, call.request.messages[0]["content"]) == ("asked", None, "go")
    keeping.cancel(LOCAL, info.run)
    await keeping.wait(LOCAL, info.run)
    assert (await call_of(keeping, LOCAL, info.run)).status == "asked"


async def test_what_is_kept_is_private_and_goes_with_the_run(
    keeping: Hub, agent_runner: AgentRunner, root: callboard.Root, tmp_path: Path
) -> None:
    agent_runner.plain("", name="clerk")
    run = await played(keeping, "clerk")
    await keeping.logs.flush()
    (file,) = files_of(keeping, run)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    await keeping.delete(LOCAL, run)
    assert not file.parent.exists()
    async with hub_of(root, tmp_path / "other", keep_requests=True, keep_runs=1) as hub:
        runs = [await played(hub, "clerk") for _ in range(3)]
        await hub.logs.flush()
        await until(lambda: set(runs) <= hub.logs.past.keys() or len(hub.logs.past) == 1)
        await hub.logs.prune()
        assert sorted(path.name for path in hub.logs.directory.glob("run-*")) == [runs[-1]]


async def test_no_secret_is_in_what_is_kept(keeping: Hub, agent_runner: AgentRunner, fake_model: FakeModels) -> None:
    agent_runner.plain("can_ask_user: false\ninstructions: 'Say open-the-gate-7 to all.'", name="clerk")
    handed_out("open-the-gate-7", 'two\n"lines"')
    fake_model.script('they told me open-the-gate-7 and two\n"lines"')
    run = await played(keeping, "clerk", "it is open-the-gate-7")
    await keeping.logs.flush()
    (file,) = files_of(keeping, run)
    text = file.read_text()
    assert "open-the-gate-7" not in text
    assert "lines" not in text
    assert "authorization" not in text.lower()
    call = await call_of(keeping, LOCAL, run)
    assert call.request.messages[0]["content"] == "it is [redacted]"
    assert call.request.system == "Say [redacted] to all."


async def test_only_who_may_read_the_run_gets_its_calls(keeping: Hub, agent_runner: AgentRunner) -> None:
    agent_runner.plain("", name="clerk")
    run = await played(keeping, "clerk")
    other = Caller("bert", frozenset({"read:runs"}))
    for read in (calls_of, call_of):
        with pytest.raises(Denied):
            await read(keeping, other, run)
        with pytest.raises(NotFound):
            await read(keeping, Caller("bert", frozenset({"run:agents"})), run)
    assert (await calls_of(keeping, Caller("bert", frozenset({"read:runs", "admin:runs"})), run)).calls


async def test_what_is_not_there_is_told(keeping: Hub, hub: Hub, agent_runner: AgentRunner) -> None:
    agent_runner.plain("", name="clerk")
    run = await played(keeping, "clerk")
    with pytest.raises(NotFound, match=f"{run} has no call 7; calls 1 to 1 are recorded"):
        await call_of(keeping, LOCAL, run, 7)
    with pytest.raises(UsageError, match=says("front.control.run_records.calls_of", MOST_CALLS=1000, limit=0)):
        await calls_of(keeping, LOCAL, run, limit=0)
    with pytest.raises(NotFound, match="there is no run"):
        await calls_of(keeping, LOCAL, "run-none")
    run = await played(hub, "clerk")
    for read in (calls_of, call_of):
        with pytest.raises(NotFound, match=says("front.control.run_records.no_stored_call")):
            await read(hub, LOCAL, run)


async def test_the_oldest_calls_are_dropped_for_want_of_room_and_that_is_told(
    keeping: Hub, agent_runner: AgentRunner, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MOST_OF_FILE", 20_000)
    agent_runner.plain("global_tools: [fs_ls]", name="clerk")
    long = "x" * 6_000
    fake_model.script(*(Reply(text=f"{n} {long}", calls=[("fs_ls", {"path": "."})]) for n in range(12)), "end")
    run = await played(keeping, "clerk")
    page = await calls_of(keeping, LOCAL, run)
    await keeping.logs.flush()
    assert len(files_of(keeping, run)) == 2
    assert page.dropped > 0
    assert [call.number for call in page.calls] == list(range(page.dropped + 1, 14))
    with pytest.raises(NotFound, match=f"call 1 of {run} was deleted to limit disk space"):
        await call_of(keeping, LOCAL, run, 1)
    for number in (page.dropped + 1, 13):  # each file can be read alone
        call = await call_of(keeping, LOCAL, run, number)
        assert len(call.request.messages) == 2 * number - 1
        assert call.request.messages[1]["text"] == f"0 {long}"


async def test_clients_read_calls_page_by_page(
    client: Client, keeping: Hub, hub: Hub, agent_runner: AgentRunner
) -> None:
    agent_runner.agent(TWO_NODES)
    run = await played(keeping, "g")
    await keeping.logs.flush()
    hub.logs.directory = keeping.logs.directory
    page = await client.result("_run/calls", run=run, limit=1)
    assert [call["number"] for call in page["calls"]] == [1]
    page = await client.result("_run/calls", run=run, after=page["next"])
    assert ([call["number"] for call in page["calls"]], page["next"]) == ([2], None)
    call = (await client.result("_run/call", run=run, number=1))["call"]
    assert call["request"]["system"] == "Plan."
    assert (await client.result("_run/call", run=run))["call"]["number"] == 2


async def test_the_settings_say_more_than_the_hub_s_own_options(
    root: callboard.Root, agent_runner: AgentRunner, tmp_path: Path
) -> None:
    agent_runner.plain("", name="clerk")
    for said, option, kept in ((False, True, False), (True, False, True), (None, False, False), (None, True, True)):
        root.settings = msgspec.structs.replace(root.settings, keep_requests=said)
        async with hub_of(root, tmp_path / f"{said}-{option}", keep_requests=option) as hub:
            run = await played(hub, "clerk")
            await hub.logs.flush()
            assert bool(files_of(hub, run)) == kept
