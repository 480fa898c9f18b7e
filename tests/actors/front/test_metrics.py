"""What Prometheus is told: each figure is there under its name, and moves by the real thing that it counts."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trio
import trio.testing
from prometheus_client.parser import text_string_to_metric_families
from support.access_keys import access_for, made_key
from support.agent_runs import AgentRunner
from support.fake_models import Reply
from support.http_agents import ASKER, LOOP
from support.http_server import ApiServer
from support.mcp_entries import _own_cache, mcp_json, scripted  # noqa: F401 - a fixture
from support.waiting import until
from support.wall_clock import jump
from trio_websocket import open_websocket_url

import callboard
from callboard.actors.front.control.usage import usage_of
from callboard.actors.front.metrics import KINDS, MOST_NAMES, OTHER, Metrics
from callboard.actors.work.spending.book import BookFile, SpendingBook
from callboard.protocol.agent import Agent
from callboard.protocol.chat import TokenUsage
from callboard.protocol.control.caller import LOCAL
from callboard.protocol.events import (
    ActorRestarted,
    Event,
    EventData,
    LlmEmbedding,
    LlmFailed,
    LlmFallback,
    LlmRequest,
    LlmRerank,
    RunFinished,
    RunStarted,
)
from callboard.protocol.kernel.questions import Question
from callboard.protocol.settings.api import ApiLimits
from callboard.supervisors import Actor, ChildSpec, Message, Supervisor

GRAPH = "start: a\nnodes:\n  a: {type: llm, prompt: hi, next: z}\n  z: {type: end}"

PLAN = {
    "http_requests_total": "counter",
    "http_request_duration_seconds": "histogram",
    "http_requests_in_flight": "gauge",
    "sessions_active_total": "gauge",
    "sessions_created_total": "counter",
    "mcp_pool_size": "gauge",
    "mcp_acquire_latency_seconds": "histogram",
    "mcp_spawns_total": "counter",
    "mcp_idle_evictions_total": "counter",
    "auth_failures_total": "counter",
    "rate_limit_rejections_total": "counter",
    "subject_requests_per_minute": "gauge",
}
"""What the plan of a server names."""

OBSERVED = {
    "actors": "gauge",
    "mailbox_depth": "gauge",
    "mailbox_wait_seconds": "histogram",
    "questions_open": "gauge",
    "question_wait_seconds": "histogram",
    "mcp_processes": "gauge",
    "mcp_pool_wait_seconds": "histogram",
    "journal_append_seconds": "histogram",
    "journal_bytes_total": "counter",
    "llm_inflight": "gauge",
    "scheduler_lag_seconds": "histogram",
    "restarts_total": "counter",
}
"""What those who look after a process of actors want to see."""

CONVENTIONS = {
    "gen_ai_client_operation_duration_seconds": (0.01, 81.92),
    "gen_ai_client_operation_time_to_first_chunk_seconds": (0.01, 81.92),
    "gen_ai_client_operation_time_per_output_chunk_seconds": (0.001, 2.5),
    "gen_ai_client_token_usage": (1, 67108864),
    "gen_ai_workflow_duration_seconds": (0.1, 14400),
    "gen_ai_invoke_agent_duration_seconds": (0.1, 14400),
    "gen_ai_invoke_agent_inference_calls": (0, 256),
    "gen_ai_invoke_agent_tool_calls": (0, 256),
    "gen_ai_execute_tool_duration_seconds": (0.01, 81.92),
    "mcp_client_operation_duration_seconds": (0.001, 300),
    "mcp_client_session_duration_seconds": (0.1, 14400),
}
"""Histograms of OpenTelemetry's conventions for generative AI, with their first and last bucket."""

SPENT = {
    f"{what}_{name}_total": "counter"
    for what in ("llm", "subject")
    for name in ("tokens", "cost_usd", "unpriced_requests")
}
"""What models cost."""


def values(metrics: Metrics) -> dict[str, float]:
    """Every sample by its name and labels; that it parses is part of the promise."""
    return parsed(metrics.exposition().decode())


def parsed(text: str) -> dict[str, float]:
    return {
        sample.name + "".join(f" {name}={value}" for name, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def figures(api_server: ApiServer) -> dict[str, float]:
    """The response of `/metrics`."""
    return parsed((await api_server.client.get("/metrics")).text)


# --- all of them ----------------------------------------------------------------------------------------------


async def test_case_110_every_figure_is_there_with_its_type_and_buckets(api_server: ApiServer) -> None:
    mcp_json(api_server.agent_runner.config_dir, srv=scripted())
    api_server.agent_runner.plain(
        "instructions: Help.\ncan_ask_user: false\nmcp_servers: [srv]\nmcp_tools: direct", name="agent"
    )
    api_server.agent_runner.agent(
        "start: a\nnodes:\n  a: {type: agent, agent: agent, prompt: go, next: z}\n  z: {type: end}"
    )
    api_server.agent_runner.models.script(
        Reply(calls=[("srv__echo", {"text": "x"})]), Reply("in several pieces", piece=2)
    )
    run = await api_server.post("/v1/runs", {"target": "g"}, 201)
    await until(lambda: api_server.agent_runner.root.mcp_in_use is not None)
    with trio.fail_after(60):
        while (await api_server.get(f"/v1/runs/{run['run']}"))["status"] == "running":
            await trio.sleep(0.01)
    text = (await api_server.client.get("/metrics")).text
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)", text, re.MULTILINE))
    wanted = {**PLAN, **OBSERVED, **SPENT, **dict.fromkeys(CONVENTIONS, "histogram")}
    wanted |= {"websocket_connections": "gauge", "websocket_messages_total": "counter"}
    wanted |= {"runs_total": "counter", "runs_active": "gauge", "llm_retries_total": "counter"}
    wanted |= {"mailbox_depth_max": "gauge", "process_resident_memory_bytes": "gauge"}
    assert {name: types.get(name) for name in wanted} == wanted
    assert parsed(text)["runs_total status=done"] == 1
    for name in set(CONVENTIONS) - {"mcp_client_session_duration_seconds"}:  # the server runs on
        bounds = [float(each) for each in re.findall(rf'^{name}_bucket{{.*?le="([^"]+)"', text, re.MULTILINE)]
        finite = [bound for bound in bounds if bound != float("inf")]
        assert (min(finite), max(finite), max(bounds)) == (*CONVENTIONS[name], float("inf")), name
    assert run["run"] not in text, "no id of a run is ever in a label"
    assert "run-" not in text


# --- requests and websockets ----------------------------------------------------------------------------------


async def test_requests_in_flight_are_those_that_have_no_end_yet(api_server: ApiServer) -> None:
    api_server.agent_runner.agent(ASKER, name="asker")
    run = (await api_server.post("/v1/runs", {"target": "asker"}, 201))["run"]
    headers = {"accept": "text/event-stream"}
    async with api_server.client.stream("GET", f"/v1/runs/{run}/events", headers=headers) as response:
        assert response.status_code == 200
        assert (await figures(api_server))["http_requests_in_flight"] == 2, "the stream, and this one"
    with trio.fail_after(60):
        while (await figures(api_server))["http_requests_in_flight"] != 1:
            await trio.sleep(0.01)
    found = await figures(api_server)
    assert found["http_requests_total method=POST route=/v1/runs status=201"] == 1
    assert found["http_request_duration_seconds_count method=POST route=/v1/runs"] == 1


async def test_websockets_and_their_frames_are_counted_once_they_are_let_in(api_server: ApiServer) -> None:
    url = f"ws://127.0.0.1:{api_server.port}/ws"
    headers = [(b"authorization", f"Bearer {api_server.token}".encode())]
    async with open_websocket_url(url, extra_headers=headers) as socket:
        for id in (1, 2):
            await socket.send_message(json.dumps({"jsonrpc": "2.0", "id": id, "method": "_server/info"}))
            with trio.fail_after(60):
                await socket.get_message()
        found = await figures(api_server)
        assert found["websocket_connections"] == 1
        assert found["websocket_messages_total direction=in"] == 2
        assert found["websocket_messages_total direction=out"] == 2
    with trio.fail_after(60):
        while (await figures(api_server))["websocket_connections"]:
            await trio.sleep(0.01)


async def test_who_is_not_let_in_is_counted_by_the_reason(api_server: ApiServer) -> None:
    for headers in ({"authorization": ""}, {"authorization": "Bearer nobody"}):
        await api_server.get("/v1/info", 401, headers=headers)
    await api_server.get("/v1/info", 403, headers={"host": "evil.test"})
    found = await figures(api_server)
    assert found["auth_failures_total reason=missing"] == 1
    assert found["auth_failures_total reason=key"] == 1
    assert found["auth_failures_total reason=place"] == 1


async def test_how_often_a_subject_asks_is_told_and_strangers_make_no_new_labels(
    mock_clock: trio.testing.MockClock, agent_runner: AgentRunner
) -> None:
    mock_clock.jump(600)
    _, key = made_key("alice", "read:runs")
    access = access_for(key, limits=ApiLimits(rate_limit_per_minute=1000))
    metrics = Metrics()
    metrics.rates = lambda: access.rates.current()
    with metrics.listening(agent_runner.root):
        for _ in range(6):
            access.rates.charge("alice")
        assert values(metrics)["subject_requests_per_minute subject=alice"] == 6
        mock_clock.jump(60 + 30)
        assert values(metrics)["subject_requests_per_minute subject=alice"] == 3, "half of that minute still counts"
        for number in range(MOST_NAMES + 50):
            access.rates.charge(f"stranger-{number}")
        found = [name for name in values(metrics) if name.startswith("subject_requests_per_minute")]
        assert len(found) == MOST_NAMES + 1
        assert f"subject_requests_per_minute subject={OTHER}" in found


# --- sessions, actors, questions ------------------------------------------------------------------------------


async def test_sessions_are_counted_however_they_are_made(api_server: ApiServer) -> None:
    api_server.agent_runner.plain(LOOP, name="clerk")
    made = await api_server.post("/v1/sessions", {"agent": "clerk"}, 201)
    await api_server.agent_runner.root.sessions.create(None, alias="by-a-command")
    found = await figures(api_server)
    assert (found["sessions_created_total"], found["sessions_active_total"]) == (2, 0)
    api_server.agent_runner.models.script("hello")
    await api_server.post(f"/v1/sessions/{made['id']}/completions", {"prompt": "hi"})
    assert (await figures(api_server))["sessions_active_total"] == 1


class Note(Message, frozen=True):
    number: int


async def test_mail_that_waits_is_measured_by_number_and_by_time(agent_runner: AgentRunner) -> None:
    metrics = Metrics()
    go_on = trio.Event()

    async def slow(me: Actor) -> None:
        async for _ in me:
            await go_on.wait()

    with metrics.listening(agent_runner.root):
        before = values(metrics)
        ref = agent_runner.root.kernel.spawn(slow)
        for number in range(5):
            await ref.tell(Note(number))
        await trio.testing.wait_all_tasks_blocked()
        found = values(metrics)
        assert found["mailbox_depth"] - before["mailbox_depth"] == 4
        assert found["mailbox_depth_max"] >= 4
        assert found["mailbox_wait_seconds_count"] - before["mailbox_wait_seconds_count"] == 1
        since = trio.current_time()
        await trio.sleep(0.02)
        go_on.set()
        await until(lambda: values(metrics)["mailbox_depth"] == before["mailbox_depth"])
        later = values(metrics)
        assert later["mailbox_wait_seconds_count"] - before["mailbox_wait_seconds_count"] == 5
        waited = later["mailbox_wait_seconds_sum"] - found["mailbox_wait_seconds_sum"]
        assert 4 * 0.02 * 0.9 <= waited <= 4 * (trio.current_time() - since) + 4
        await ref.stop()


async def test_who_is_not_watched_has_the_kernel_s_own_mailbox(agent_runner: AgentRunner) -> None:
    plain = agent_runner.root.kernel.mailbox
    with Metrics().listening(agent_runner.root):
        assert agent_runner.root.kernel.mailbox is not plain
    assert agent_runner.root.kernel.mailbox is plain


async def test_questions_are_counted_while_open_and_their_waits_when_closed(agent_runner: AgentRunner) -> None:
    metrics = Metrics()
    agent_runner.root.questions.patient = True
    with metrics.listening(agent_runner.root):

        async def ask(me: Actor) -> None:
            await me.ask_person(Question(id="", actor="", text="well?"))

        ref = agent_runner.root.kernel.spawn(ask)
        await until(lambda: agent_runner.root.questions.open)
        assert values(metrics)["questions_open"] == 1
        (question,) = agent_runner.root.questions.open
        agent_runner.root.questions.answer(question.id, "yes")
        await ref.wait()
        found = values(metrics)
    assert found["questions_open"] == 0
    assert found["question_wait_seconds_count end=answered"] == 1


async def test_an_actor_that_is_started_again_is_counted(agent_runner: AgentRunner) -> None:
    metrics = Metrics()
    lives = 0
    heard: list[object] = []

    async def fragile(me: Actor) -> None:
        nonlocal lives
        lives += 1
        if lives == 1:
            raise ValueError("once")
        me.started()
        await trio.sleep_forever()

    with (
        metrics.listening(agent_runner.root),
        agent_runner.root.bus.listen(lambda event: heard.append(type(event.data))),
    ):
        site = Supervisor(ChildSpec(name="fragile", body=fragile), intensity=2)
        ref = agent_runner.root.kernel.spawn(site, name="site", link=False)
        await until(lambda: lives == 2 and ActorRestarted in heard)
        assert values(metrics)["restarts_total"] == heard.count(ActorRestarted) == 1
        await ref.stop()


async def test_how_late_the_loop_is_is_measured(agent_runner: AgentRunner) -> None:
    access = access_for()
    access.metrics = metrics = Metrics()

    async def body(me: Actor) -> None:
        await access.start(me)
        await trio.sleep_forever()

    ref = agent_runner.root.kernel.spawn(body)
    await until(lambda: values(metrics)["scheduler_lag_seconds_count"])
    ref.cancel()
    await ref.wait()


# --- runs -----------------------------------------------------------------------------------------------------


async def test_case_110_a_run_is_counted_and_the_text_parses(agent_runner: AgentRunner) -> None:
    agent_runner.agent(GRAPH)
    agent_runner.models.script("hello")
    metrics = Metrics()
    with metrics.listening(agent_runner.root):
        outcome = await agent_runner.run("x")
        found = values(metrics)
    assert outcome.status == "done"
    assert found["runs_total status=done"] == 1
    assert (found["runs_active"], found["llm_inflight"]) == (0, 0)
    model = "gen_ai_request_model=fake:model"
    assert found[f"gen_ai_client_operation_duration_seconds_count {model}"] == 1
    assert found[f"gen_ai_client_token_usage_sum {model} gen_ai_token_type=input"] == 10
    assert found["gen_ai_workflow_duration_seconds_count gen_ai_workflow_name=g"] == 1
    assert found["actors state=running"] >= 1
    assert agent_runner.events[0].run not in metrics.exposition().decode()


async def test_an_agent_s_loop_is_measured_with_its_requests_and_tool_calls(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    who = Agent(name="a", instructions="Help.", can_ask_user=False, mcp_servers=("srv",), mcp_tools="direct")
    call = Reply(calls=[("srv__echo", {"text": "x"}), ("srv__add", {"a": 1, "b": 2})])
    agent_runner.models.script(call, Reply("done, in pieces", piece=2))
    metrics = Metrics()
    with metrics.listening(agent_runner.root):
        await agent_runner.run("go", target=who)
        found = values(metrics)
        agent = "gen_ai_agent_name=a"
        assert found[f"gen_ai_invoke_agent_duration_seconds_count {agent}"] == 1
        assert found[f"gen_ai_invoke_agent_inference_calls_sum {agent}"] == 2
        assert found[f"gen_ai_invoke_agent_tool_calls_sum {agent}"] == 2
        assert found["gen_ai_execute_tool_duration_seconds_count error=false gen_ai_tool_name=srv__echo"] == 1
        assert "gen_ai_workflow_duration_seconds_count gen_ai_workflow_name=a" not in found
        assert found["mcp_spawns_total"] == 1
        assert found["mcp_acquire_latency_seconds_count"] >= found["mcp_pool_wait_seconds_count"] == 1
        assert found["mcp_pool_wait_seconds_sum"] > 0
        assert found["mcp_client_operation_duration_seconds_count mcp_method_name=tools/call"] == 2
        assert found["mcp_processes server=srv state=idle"] == found["mcp_pool_size state=idle"] == 1
        await agent_runner.root.mcp.reload("srv")
        found = values(metrics)
    assert found["mcp_client_session_duration_seconds_count server=srv"] == 1


async def test_a_server_that_nobody_uses_is_counted_when_it_is_stopped(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted(idle_timeout_seconds=0.05))
    who = Agent(name="a", instructions="Help.", can_ask_user=False, mcp_servers=("srv",), mcp_tools="direct")
    agent_runner.models.script(Reply(calls=[("srv__pid", {})]), "done")
    metrics = Metrics()
    with metrics.listening(agent_runner.root):
        await agent_runner.run("go", target=who)
        await until(lambda: values(metrics)["mcp_idle_evictions_total"] == 1)
        await until(lambda: values(metrics).get("mcp_client_session_duration_seconds_count server=srv") == 1)


async def test_the_first_piece_of_an_answer_and_those_after_it_are_timed(agent_runner: AgentRunner) -> None:
    agent_runner.agent(GRAPH)
    agent_runner.models.script(Reply("ten pieces of text here", piece=2, delay=0.03, gap=0.005))
    metrics = Metrics()
    with metrics.listening(agent_runner.root):
        await agent_runner.run("x")
        found = values(metrics)
    model = "gen_ai_request_model=fake:model"
    (first,) = [key for key in found if key.startswith("gen_ai_client_operation_time_to_first_chunk_seconds_sum")]
    assert found[first] >= 0.03 * 0.9
    pieces = "gen_ai_client_operation_time_per_output_chunk_seconds"
    assert found[f"{pieces}_count {model}"] == 1
    assert (
        0.005 * 0.5 <= found[f"{pieces}_sum {model}"] <= found[f"gen_ai_client_operation_duration_seconds_sum {model}"]
    )


async def test_a_model_that_is_waited_for_is_in_flight_until_its_run_is_cancelled(agent_runner: AgentRunner) -> None:
    agent_runner.agent(GRAPH)
    agent_runner.models.script(Reply(hold=trio.Event()))
    metrics = Metrics()
    with metrics.listening(agent_runner.root):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent_runner.run, "x")
            await until(lambda: agent_runner.models.requests)
            found = values(metrics)
            nursery.cancel_scope.cancel()
        assert (found["llm_inflight"], found["runs_active"]) == (1, 1)
        found = values(metrics)
    assert (found["llm_inflight"], found["runs_active"]) == (0, 0)
    assert found["runs_total status=cancelled"] == 1


async def test_a_request_that_is_tried_again_is_counted_and_is_in_flight_once(agent_runner: AgentRunner) -> None:
    agent_runner.agent(GRAPH.replace("prompt: hi", "prompt: hi, max_attempts: 2"))
    agent_runner.models.script(Reply(status=503, error="busy", headers={"retry-after": "0"}), "fine")
    metrics = Metrics()
    with metrics.listening(agent_runner.root):
        await agent_runner.run("x")
        found = values(metrics)
    assert [value for name, value in found.items() if name.startswith("llm_retries_total")] == [1]
    assert found["llm_inflight"] == 0


def told(metrics: Metrics, data: EventData, *, run: str = "run-1", id: str = "") -> None:
    now = datetime.now(UTC)
    metrics._work.heard(Event(seq=1, ts=now, run=run, actor=f"/{run}", kind=data.kind, id=id, data=data))


async def test_a_request_that_is_given_up_is_not_in_flight_while_its_actor_goes_on() -> None:
    metrics = Metrics()
    told(metrics, RunStarted(target="a", name="a", dialect="agent"))
    told(metrics, LlmRequest(model="m", messages=1), id="call-1")
    assert values(metrics)["llm_inflight"] == 1
    told(metrics, LlmFailed(model="m", error="no", code="upstream"), id="call-1")
    assert values(metrics)["llm_inflight"] == 0


async def test_requests_that_go_to_another_model_are_counted_by_both() -> None:
    metrics = Metrics()
    told(metrics, RunStarted(target="a", name="a", dialect="agent"))
    told(metrics, LlmFallback(model="a:x", next="b:y", error="503"), id="call-1")
    assert values(metrics)["llm_fallbacks_total model=a:x next=b:y"] == 1


async def test_requests_for_vectors_and_for_an_order_are_counted_by_their_models() -> None:
    metrics = Metrics()
    told(metrics, RunStarted(target="a", name="a", dialect="graph"))
    told(metrics, LlmEmbedding(model="a:e", texts=96, seconds=0.5, input_tokens=700))
    told(metrics, LlmRerank(model="a:r", texts=10, seconds=0.5))
    told(metrics, LlmRerank(model="a:r", texts=10, seconds=0.5, error="no", code="model"))
    found = values(metrics)
    for model, tokens in (("a:e", 700), ("a:r", 0)):
        assert found[f"gen_ai_client_operation_duration_seconds_count gen_ai_request_model={model}"] == 1
        counted = f"gen_ai_client_token_usage_sum gen_ai_request_model={model} gen_ai_token_type=input"
        assert found.get(counted, 0) == tokens


async def test_what_models_cost_is_counted_by_model_and_by_subject(tmp_path: Path) -> None:
    metrics = Metrics()
    async with callboard.Root(config_dir=tmp_path, keeps_usage=True) as root:
        book = root.book
        assert book is not None
        with metrics.listening(root):
            cached = TokenUsage(input_tokens=100, cached_tokens=60, cache_write_tokens=10, output_tokens=10)
            book.add("alice", "a", "a:x", cached, 0.5)
            book.add("bob", "b", "a:x", TokenUsage(input_tokens=5, output_tokens=30, reasoning_tokens=25), 0.25)
            book.add("alice", "a", "b:y", TokenUsage(input_tokens=7), None)
        book.add("alice", "a", "a:x", cached, 0.5)
        found = values(metrics)
        kinds = {kind: found[f"llm_tokens_total kind={kind} model=a:x"] for kind in KINDS}
        assert kinds == {"input": 35, "cached": 60, "cache_write": 10, "output": 15, "reasoning": 25}
        assert sum(kinds.values()) == 100 + 10 + 5 + 30
        assert (found["llm_cost_usd_total model=a:x"], found["llm_unpriced_requests_total model=a:x"]) == (0.75, 0)
        assert found["llm_unpriced_requests_total model=b:y"] == 1
        assert "llm_cost_usd_total model=b:y" not in found, "which is not $0"
        assert found["subject_cost_usd_total subject=alice"] == 0.5
        assert found["subject_unpriced_requests_total subject=alice"] == 1
        assert found["subject_tokens_total kind=input subject=alice"] == 37


async def test_what_a_run_asks_of_models_is_counted_at_once_and_told_as_usage(
    agent_runner: AgentRunner, tmp_path: Path
) -> None:
    agent_runner.agent(GRAPH)
    agent_runner.root.book = SpendingBook(
        agent_runner.root.kernel, BookFile(tmp_path / "usage.db"), now=lambda: datetime.now(UTC).timestamp()
    )
    metrics = Metrics()
    with metrics.listening(agent_runner.root):
        await agent_runner.run("x")
        found = values(metrics)
        told = await usage_of(agent_runner.root, LOCAL, ["model", "agent", "key"], 1)
    (row,) = told.usage
    assert (row.model, row.agent, row.key, row.requests, row.unpriced) == ("fake:model", "g", "local", 1, 1)
    kinds = [found[f"llm_tokens_total kind={kind} model=fake:model"] for kind in KINDS]
    assert sum(kinds) == row.input_tokens + row.output_tokens == 15
    assert found["subject_unpriced_requests_total subject=local"] == 1


async def test_subjects_and_models_that_cost_have_only_so_many_labels(tmp_path: Path) -> None:
    metrics = Metrics()
    async with callboard.Root(config_dir=tmp_path, keeps_usage=True) as root:
        assert root.book is not None
        with metrics.listening(root):
            for number in range(MOST_NAMES + 50):
                root.book.add(f"stranger-{number}", "a", f"a:{number}", TokenUsage(), 1.0)
        found = values(metrics)
    for name, label in (("llm_cost_usd_total", "model"), ("subject_cost_usd_total", "subject")):
        assert len([each for each in found if each.startswith(name)]) == MOST_NAMES + 1
        assert found[f"{name} {label}={OTHER}"] == 50


async def test_a_run_begun_before_anybody_counted_is_not_taken_from_those_under_way() -> None:
    metrics = Metrics()
    told(metrics, RunFinished(outcome={}))
    found = values(metrics)
    assert (found["runs_active"], found["runs_total status=done"]) == (0, 1)


async def test_what_is_written_down_of_a_run_is_counted_in_bytes_and_writes(api_server: ApiServer) -> None:
    api_server.agent_runner.agent("start: a\nnodes:\n  a: {type: end, output: hello}")
    before = await figures(api_server)
    run = (await api_server.post("/v1/runs", {"target": "g"}, 201))["run"]
    log = api_server.agent_runner.config_dir.parent / "state" / "callboard" / "runs" / run / "events.jsonl"
    with trio.fail_after(60):
        while not log.exists() or b"run.finished" not in log.read_bytes():
            await trio.sleep(0.01)
    appends = before["journal_append_seconds_count"]
    found = before
    with trio.fail_after(60):  # bytes are counted before the write that takes them, its time after it
        while found["journal_bytes_total"] < log.stat().st_size or found["journal_append_seconds_count"] == appends:
            await trio.sleep(0.01)
            found = await figures(api_server)
    assert found["journal_bytes_total"] == log.stat().st_size
    assert found["journal_append_seconds_count"] > appends


# --- labels ---------------------------------------------------------------------------------------------------


async def test_a_label_has_only_so_many_values_whatever_files_say(agent_runner: AgentRunner) -> None:
    metrics = Metrics()
    agent_runner.models.script(*["hello"] * (MOST_NAMES + 5))
    with metrics.listening(agent_runner.root):
        for number in range(MOST_NAMES + 5):
            who = Agent(name=f"agent-{number}", instructions="x", can_ask_user=False)
            await agent_runner.run("go", target=who)
    name = "gen_ai_invoke_agent_duration_seconds_count"
    found = {key: value for key, value in values(metrics).items() if key.startswith(name)}
    assert len(found) == MOST_NAMES + 1
    assert found[f"{name} gen_ai_agent_name={OTHER}"] == 5


async def test_nothing_is_counted_any_more_when_nobody_listens(agent_runner: AgentRunner) -> None:
    metrics = Metrics()
    heard = agent_runner.root.bus.kernel.heard
    with metrics.listening(agent_runner.root):
        pass
    assert agent_runner.root.bus.kernel.heard == heard
    assert "actors" not in values(metrics)


@pytest.mark.parametrize("moved", [-86_400, 86_400])
async def test_clock_jump_question_waits_and_runs_are_measured_by_a_clock_that_does_not_jump(
    agent_runner: AgentRunner, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    agent_runner.agent(ASKER)
    metrics = Metrics()
    agent_runner.root.questions.patient = True
    with metrics.listening(agent_runner.root):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent_runner.run, "x")
            await until(lambda: agent_runner.root.questions.open)
            jump(monkeypatch, moved)
            (question,) = agent_runner.root.questions.open
            agent_runner.root.questions.answer(question.id, "red")
        found = values(metrics)
    assert agent_runner.events[-1].ts.timestamp() - agent_runner.events[0].ts.timestamp() == pytest.approx(
        moved, abs=120
    )
    assert 0 < found["question_wait_seconds_sum end=answered"] < 60
    assert 0 < found["gen_ai_workflow_duration_seconds_sum gen_ai_workflow_name=g"] < 60
