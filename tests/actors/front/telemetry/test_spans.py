"""What a run's spans are: their tree, their names, their errors, their ends."""

from __future__ import annotations

import asyncio
import json
import textwrap
from pathlib import Path

import pytest
import trio
from opentelemetry.trace import SpanKind, get_current_span
from support.agent_runs import AgentRunner
from support.fake_models import Reply, Request
from support.messages import says
from support.traced import Traced

import callboard
from callboard.actors.front.telemetry.spans import Listener
from callboard.actors.runs.trace_context import continue_trace
from callboard.protocol.events import Event
from callboard.protocol.requests import RunRequest
from callboard.testing import ScriptedModel, call

KID = "instructions: kid\ncan_ask_user: false"
BOSS = "instructions: boss\ncan_spawn_agents: true\ncan_ask_user: false"


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def bad() -> int:
    """Fails."""
    raise ValueError("that went wrong")


def spawns_and_collects(request: Request) -> Reply | str:
    """A boss that spawns a child, adds, fails, calls what is not there, and collects the child."""
    if request.prompt.startswith("child"):
        return "kid done"
    if not request.results:
        spawn = ("agent__spawn", {"agent": "kid", "prompt": "child 1"})
        return Reply(calls=[spawn, ("add", {"a": 1, "b": 2}), ("bad", {}), ("nosuch", {})])
    if len(request.results) == 4:
        return Reply(calls=[("agent__collect", {"id": json.loads(request.results[0])["id"]})])
    return "boss done"


async def team(agent_runner: AgentRunner) -> callboard.Outcome:
    agent_runner.plain(BOSS, name="boss")
    agent_runner.plain(KID, name="kid")
    agent_runner.models.answer_with(spawns_and_collects)
    return await agent_runner.run("do it", target="boss", tools=[add, bad])


async def test_an_agent_with_tools_and_a_child_is_one_tree_of_spans(agent_runner: AgentRunner, traced: Traced) -> None:
    with traced.of(agent_runner.root):
        outcome = await team(agent_runner)
    assert outcome.status == "done"
    assert len({span.context.trace_id for span in traced.spans}) == 1
    below = [span.name for span in traced.spans if traced.parents()[span.name] == "invoke_agent boss"]
    assert sorted(set(below)) == [
        *("chat model", "execute_tool add", "execute_tool agent__collect", "execute_tool agent__spawn"),
        *("execute_tool bad", "execute_tool nosuch", "invoke_agent kid"),
    ]
    tree = traced.tree()
    assert tree[tree.index("  invoke_agent kid") + 1] == "    chat model"
    assert traced.errors() == {"execute_tool bad": "error", "execute_tool nosuch": "refused"}
    boss = traced.named("invoke_agent boss")
    assert boss.parent is None
    assert dict(boss.attributes) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "boss",
        "gen_ai.conversation.id": outcome.run_id,
        "gen_ai.provider.name": "fake",
        "gen_ai.request.model": "model",
        "gen_ai.usage.input_tokens": 40,
        "gen_ai.usage.output_tokens": 20,
        "callboard.run.id": outcome.run_id,
        "callboard.dialect": "agent",
        "callboard.agent.turns": 3,
        "callboard.agent.tool_calls": 4,
        "callboard.agent.stop": "done",
    }
    assert [event.name for event in boss.events] == ["callboard.agent.spawned"]
    assert (
        traced.named("invoke_agent kid").attributes["gen_ai.agent.id"] == boss.events[0].attributes["gen_ai.agent.id"]
    )


async def test_requests_for_vectors_are_client_spans_of_what_they_are_for(
    agent_runner: AgentRunner, traced: Traced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: Request) -> Reply:
        rows = [{"index": n, "embedding": [1.0, 0.5]} for n, _ in enumerate(request.json["input"])]
        return Reply(raw=json.dumps({"data": rows, "usage": {"prompt_tokens": 7, "total_tokens": 7}}).encode())

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    look = "type: rag, documents: [a.md], embedding_model: 'fake:vectors', query: flour, next: e"
    home = agent_runner.agent(f"start: look\nnodes:\n  look: {{{look}}}\n  e: {{type: end}}")
    (home / "a.md").write_text("flour")
    agent_runner.models.answer_with(answer)
    with traced.of(agent_runner.root):
        outcome = await agent_runner.run("x")
        assert outcome.status == "done", outcome.error
        (home / "a.md").write_text("flour and water")
        agent_runner.models.answer_with(lambda _: Reply(status=400, error="no such model"))
        assert (await agent_runner.run("x", rebuild_knowledge=True)).status == "failed"
    *good, bad = [span for span in traced.spans if span.name == "embeddings vectors"]
    (node, *_) = [span for span in traced.spans if span.name == "node look"]
    assert good[-1].parent.span_id == node.context.span_id
    assert dict(good[-1].attributes) == {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.provider.name": "fake",
        "gen_ai.request.model": "vectors",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.conversation.id": outcome.run_id,
        "callboard.run.id": outcome.run_id,
        "callboard.texts": 1,
    }
    assert (good[-1].kind, bad.attributes["error.type"]) == (SpanKind.CLIENT, "model")
    assert sum(point.sum for point in traced.points("gen_ai.client.token.usage")) == 14


async def test_a_chat_is_a_client_span_with_what_the_conventions_want(
    agent_runner: AgentRunner, traced: Traced
) -> None:
    agent_runner.plain(KID, name="kid")
    agent_runner.models.script("hello there")
    with traced.of(agent_runner.root):
        outcome = await agent_runner.run("x", target="kid")
    chat = traced.named("chat model")
    assert chat.kind is SpanKind.CLIENT
    assert (chat.instrumentation_scope.name, chat.instrumentation_scope.version) == ("callboard", callboard.__version__)
    attributes = dict(chat.attributes)
    assert attributes.pop("gen_ai.response.time_to_first_chunk") >= 0
    assert f"http://{attributes.pop('server.address')}:{attributes.pop('server.port')}" == agent_runner.models.url
    assert attributes == {
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "fake",
        "gen_ai.request.model": "model",
        "gen_ai.request.stream": True,
        "gen_ai.response.model": "model",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.conversation.id": outcome.run_id,
        "callboard.run.id": outcome.run_id,
    }


async def test_spans_have_the_times_of_their_events(agent_runner: AgentRunner, traced: Traced) -> None:
    agent_runner.plain(KID, name="kid")
    with traced.of(agent_runner.root):
        await agent_runner.run("x", target="kid")
    at = {event.kind: event.ts.timestamp() for event in agent_runner.events}
    chat, agent = traced.named("chat model"), traced.named("invoke_agent kid")
    spans = [(chat, "llm.request", "llm.response"), (agent, "run.started", "run.finished")]
    for span, began, ended in spans:
        assert span.start_time / 1e9 == pytest.approx(at[began], abs=1e-5)
        assert span.end_time / 1e9 == pytest.approx(at[ended], abs=1e-5)


async def test_retries_are_inside_of_one_span(agent_runner: AgentRunner, traced: Traced) -> None:
    agent_runner.plain(KID, name="kid")
    agent_runner.models.script(Reply(status=503, error="busy", headers={"retry-after": "0"}), "well")
    with traced.of(agent_runner.root):
        assert (await agent_runner.run("x", target="kid")).status == "done"
    chat = traced.named("chat model")
    assert chat.status.is_ok
    assert [event.name for event in chat.events] == ["callboard.retry"]
    assert set(chat.events[0].attributes) == {"callboard.attempt", "callboard.wait"}


async def test_a_model_that_answers_for_another_is_the_one_of_the_response(
    agent_runner: AgentRunner, traced: Traced
) -> None:
    agent_runner.plain(f"{KID}\nmodel: [fake:model, fake:other]", name="kid")
    agent_runner.models.answer_with(lambda request: Reply(status=500) if request.json["model"] == "model" else "well")
    with traced.of(agent_runner.root):
        assert (await agent_runner.run("x", target="kid")).status == "done"
    chat = traced.named("chat model")
    assert chat.status.is_ok
    assert chat.events[-1].name == "callboard.fallback"
    assert chat.events[-1].attributes == {"callboard.model": "fake:model", "callboard.next_model": "fake:other"}
    assert (chat.attributes["gen_ai.request.model"], chat.attributes["gen_ai.response.model"]) == ("model", "other")


async def test_nodes_that_run_at_once_are_siblings_and_a_failure_is_told_where_it_was(
    agent_runner: AgentRunner, traced: Traced
) -> None:
    agent_runner.agent(
        """
        start: fan
        initial_state: {ready: "yes"}
        nodes:
          fan: {type: script, script: fan.sh, next: [a, b, c]}
          a: {type: llm, prompt: one, next: z}
          b: {type: llm, prompt: two, next: z}
          c: {type: script, script: c.sh, state_updates: {}, next: z}
          z: {type: end}
        """,
        fan="echo '{}'",
        c="exit 3",
    )
    agent_runner.models.answer_with(lambda request: Reply(status=400, error="no") if request.prompt == "two" else "ok")
    with traced.of(agent_runner.root):
        outcome = await agent_runner.run("x")
    parents = traced.parents()
    top = "invoke_workflow g"
    assert {parents[f"node {name}"] for name in "abc"} == {parents["node fan"]} == {top}
    assert parents["execute_tool fan.sh"] == "node fan"
    assert {name: kind for name, kind in traced.errors().items() if name.startswith("node")} == {
        "node b": "model",
        "node c": "node_failed",
    }
    assert traced.named("execute_tool c.sh").attributes["process.exit.code"] == 3
    chats = {span.attributes.get("error.type") for span in traced.spans if span.name == "chat model"}
    assert chats == {None, "model"}
    assert traced.named(top).status.is_ok == (outcome.status == "done")


async def test_an_agent_in_a_graph_is_below_its_node(agent_runner: AgentRunner, traced: Traced) -> None:
    agent_runner.plain(KID, name="kid")
    agent_runner.agent("start: a\nnodes:\n  a: {type: agent, agent: kid, prompt: go, next: z}\n  z: {type: end}")
    agent_runner.models.script(Reply(status=401, error="who are you"))
    with traced.of(agent_runner.root):
        outcome = await agent_runner.run("x")
    assert outcome.error is not None
    assert traced.tree() == ["invoke_workflow g", "  node a", "    invoke_agent kid", "      chat model"]
    assert set(traced.errors().values()) == {outcome.error.code} == {"credentials"}


async def test_a_workflow_with_a_subgraph_is_a_tree(agent_runner: AgentRunner, traced: Traced, tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(
        textwrap.dedent(
            """
            version: 0.4.0
            graph:
              id: w
              start: [A]
              end: [C]
              nodes:
              - {id: A, type: agent, config: {provider: fake, name: model, role: be nice}}
              - {id: B, type: literal, config: {content: hello, role: user}}
              - id: S
                type: subgraph
                config:
                  type: config
                  config:
                    id: inner
                    start: [I]
                    end: [I]
                    nodes:
                    - {id: I, type: agent, config: {provider: fake, name: model, role: be nice}}
                    edges: []
              - {id: C, type: passthrough, config: {}}
              edges:
              - {from: A, to: B}
              - {from: A, to: S}
              - {from: S, to: C}
            """
        )
    )
    with traced.of(agent_runner.root):
        outcome = await agent_runner.run("x", target=path)
    assert outcome.status == "done", outcome.error
    assert [line for line in traced.tree() if "node" in line or "invoke" in line] == [
        "invoke_workflow w",
        "  node A",
        "  node B",
        "  node S",
        "    invoke_workflow inner",
        "      node I",
        "  node C",
    ]
    assert [traced.parents()["chat model"]] == ["node I"]


async def test_a_run_that_is_cancelled_closes_all_its_spans(agent_runner: AgentRunner, traced: Traced) -> None:
    agent_runner.plain(KID, name="kid")
    agent_runner.agent("start: a\nnodes:\n  a: {type: agent, agent: kid, prompt: go, next: z}\n  z: {type: end}")
    agent_runner.models.script(Reply(hold=trio.Event()))
    with traced.of(agent_runner.root):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent_runner.run, "x")
            with trio.fail_after(60):
                await agent_runner.models.arrived(1)
            assert traced.spans == []
            nursery.cancel_scope.cancel()
    assert traced.tree() == ["invoke_workflow g", "  node a", "    invoke_agent kid", "      chat model"]
    assert set(traced.errors().values()) == {"cancelled"}
    assert len(traced.errors()) == 4


async def test_an_actor_that_is_killed_closes_its_spans_and_the_run_goes_on(
    agent_runner: AgentRunner, traced: Traced
) -> None:
    agent_runner.plain(BOSS, name="boss")
    agent_runner.plain(KID, name="kid")
    held = trio.Event()

    def answer(request: Request) -> Reply | str:
        if request.prompt.startswith("child"):
            return Reply(hold=held)
        if not request.results:
            return Reply(calls=[("agent__spawn", {"agent": "kid", "prompt": "child 1"})])
        id = json.loads(request.results[0])["id"]
        if len(request.results) == 1:
            return Reply(calls=[("agent__cancel", {"id": id})])
        return "done without it"

    agent_runner.models.answer_with(answer)
    with traced.of(agent_runner.root):
        assert (await agent_runner.run("x", target="boss")).status == "done"
    assert traced.errors()["invoke_agent kid"] == "cancelled"
    assert traced.named("invoke_agent boss").status.is_ok


async def test_nothing_of_a_run_stays_behind(
    agent_runner: AgentRunner, traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    listeners: list[Listener] = []

    class Kept(Listener):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)  # type: ignore[arg-type]  # whatever it is given
            listeners.append(self)

    monkeypatch.setattr("callboard.actors.front.telemetry.spans.Listener", Kept)
    agent_runner.plain(KID, name="kid")
    with traced.of(agent_runner.root):
        for _ in range(3):
            await agent_runner.run("x", target="kid")
            assert listeners[0].under_way == 0
        agent_runner.models.script(Reply(hold=trio.Event()))
        with trio.move_on_after(0.1):
            await agent_runner.run("x", target="kid")
        assert listeners[0].under_way == 0


async def test_runs_under_way_when_nobody_listens_any_more_are_closed(
    agent_runner: AgentRunner, traced: Traced
) -> None:
    agent_runner.plain(KID, name="kid")
    held = trio.Event()
    agent_runner.models.script(Reply("late", hold=held))
    async with trio.open_nursery() as nursery:
        with traced.of(agent_runner.root):
            nursery.start_soon(agent_runner.run, "x", "kid")
            with trio.fail_after(60):
                await agent_runner.models.arrived(1)
        assert traced.tree() == ["invoke_agent kid", "  chat model"]
        held.set()
    assert agent_runner.events[-1].kind == "run.finished"


async def test_a_run_inside_of_a_span_of_the_programs_own_is_its_child(
    agent_runner: AgentRunner, traced: Traced
) -> None:
    agent_runner.plain(KID, name="kid")
    with traced.of(agent_runner.root), traced.tracers.get_tracer("mine").start_as_current_span("mine"):
        await agent_runner.run("x", target="kid")
    assert traced.parents()["invoke_agent kid"] == "mine"


async def test_a_run_of_an_asyncio_program_is_the_child_of_its_span_and_its_tools_are_in_it(
    agent_runner: AgentRunner, traced: Traced
) -> None:
    agent_runner.plain(KID, name="kid")
    agent_runner.models.script(Reply(calls=[("look", {})]), "done")
    tracer = traced.tracers.get_tracer("mine")

    async def look() -> None:
        """Look."""
        await asyncio.sleep(0)
        with tracer.start_as_current_span("looked"):
            pass

    async def main() -> None:
        async with callboard.Root(config_dir=agent_runner.config_dir) as root:
            with traced.of(root), tracer.start_as_current_span("mine"):
                await root.run("kid", "x", tools=[look])

    await trio.to_thread.run_sync(lambda: asyncio.run(main()))
    assert traced.parents()["invoke_agent kid"] == "mine"
    assert traced.parents()["looked"] == "execute_tool look"


async def test_what_tools_and_models_do_is_below_their_spans(agent_runner: AgentRunner, traced: Traced) -> None:
    """Of async tools, plain tools in threads, child runs, runs of their own, and models made in Python."""
    tracer = traced.tracers.get_tracer("mine")
    kid = callboard.Agent(name="kid", instructions="kid", model=ScriptedModel(["kid"] * 2, name="lab:kid"))

    class Model:
        name = "lab:boss"

        async def request(self, request: callboard.chat.ChatRequest) -> callboard.chat.ChatReply:
            with tracer.start_as_current_span("http post"):
                pass
            calls = [call(name) for name in ("quick", "plain", "child", "other")] if len(request.messages) == 1 else []
            return callboard.chat.ChatReply(text="done" * (not calls), tool_calls=tuple(calls))

    async def quick() -> None:
        await trio.lowlevel.checkpoint()
        with tracer.start_as_current_span("http get"):
            pass

    def plain() -> None:
        with tracer.start_as_current_span("query"):
            pass

    async def child(ctx: callboard.Context[None]) -> str:
        return (await ctx.run(kid, "child")).final

    async def other() -> str:
        return (await agent_runner.root.run(kid, "other", id="run-other")).final

    boss = callboard.Agent(name="boss", instructions="boss", model=Model(), tools=[quick, plain, child, other])
    with traced.of(agent_runner.root):
        assert (await agent_runner.root.run(boss, "go")).final == "done"
    parents = traced.parents()
    assert parents["http get"] == "execute_tool quick"
    assert parents["query"] == "execute_tool plain"
    assert parents["http post"] == "chat boss"
    assert sorted(traced.parents_of("invoke_agent kid")) == ["execute_tool child", "execute_tool other"]
    assert {parents["execute_tool quick"], parents["chat boss"]} == {"invoke_agent boss"}
    assert not get_current_span().get_span_context().is_valid


async def test_a_run_continues_the_trace_of_the_request_that_asked_for_it(
    agent_runner: AgentRunner, traced: Traced
) -> None:
    agent_runner.plain(KID, name="kid")
    trace_id, span_id = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"

    async def request() -> None:
        continue_trace({"traceparent": f"00-{trace_id}-{span_id}-01"})
        await agent_runner.run("x", target="kid")

    with traced.of(agent_runner.root):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(request)
        await agent_runner.run("x", target="kid")
    first, second = (span for span in traced.spans if span.name == "invoke_agent kid")
    assert first.parent is not None
    assert (f"{first.context.trace_id:032x}", f"{first.parent.span_id:016x}") == (trace_id, span_id)
    assert second.parent is None  # the next request has nothing to do with it


async def test_nonsense_in_the_header_is_no_trace(agent_runner: AgentRunner, traced: Traced) -> None:
    agent_runner.plain(KID, name="kid")

    async def request() -> None:
        continue_trace({"traceparent": "00-zz-\r\n", "tracestate": "=" * 9000})
        await agent_runner.run("x", target="kid")

    with traced.of(agent_runner.root):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(request)
    assert traced.named("invoke_agent kid").parent is None


async def test_the_conversation_is_the_session(agent_runner: AgentRunner, traced: Traced) -> None:
    from callboard.actors.runs.session_run import say

    agent_runner.plain(KID, name="kid")
    with traced.of(agent_runner.root):
        for _ in range(2):
            await say(agent_runner.root, None, "notes", RunRequest(prompt="x"), agent="kid")
        outcome = await agent_runner.run("x", target="kid")
    assert [span.attributes["gen_ai.conversation.id"] for span in traced.spans][-1] == outcome.run_id
    traced.forget(outcome.run_id)
    found = {span.attributes["gen_ai.conversation.id"] for span in traced.spans if span.name.startswith("invoke")}
    assert found == {str(agent_runner.root.sessions.store.resolve_alias("notes", "kid"))}


async def test_questions_are_events_on_the_span_that_waits(agent_runner: AgentRunner, traced: Traced) -> None:
    agent_runner.agent(
        "start: a\nnodes:\n  a: {type: input, question: How is it?, key: said, next: z}\n  z: {type: end}"
    )
    with traced.of(agent_runner.root):
        await agent_runner.run("x", answers=["fine"])
    events = [event.name for event in traced.named("node a").events]
    assert events == ["callboard.question.asked", "callboard.question.answered"]


async def test_a_tool_called_by_hand_is_no_run(agent_runner: AgentRunner, traced: Traced) -> None:
    stream = agent_runner.root.bus.open("call-1")
    heard: list[Event] = []

    async def body(me: object) -> None:
        return None

    with traced.of(agent_runner.root), stream.listen(heard.append):
        await agent_runner.root.kernel.spawn(body, stream=stream).wait()
    assert heard
    assert traced.spans == []


def test_a_program_without_a_root_is_told_what_is_missing(traced: Traced) -> None:
    with pytest.raises(callboard.CallboardError, match=says("front.telemetry.attach.telemetry")), callboard.telemetry():
        pass


async def test_a_run_that_went_on_over_a_failure_is_a_span_with_an_error(
    agent_runner: AgentRunner, traced: Traced
) -> None:
    text = "start: a\nnodes:\n  a: {type: llm, prompt: p, max_attempts: 1, next: b}\n  b: {type: end}\n"
    agent_runner.agent(text, name="kid")
    agent_runner.agent("start: a\nnodes:\n  a: {type: agent, agent: kid, prompt: p, next: b}\n  b: {type: end}\n")
    agent_runner.models.answer_with(lambda _: Reply(status=404, error="no such model"))
    with traced.of(agent_runner.root):
        outcome = await agent_runner.run()
    assert outcome.status == "failed"
    errors = traced.errors()
    assert errors["invoke_workflow g"] == errors["invoke_workflow kid"] == "model"
