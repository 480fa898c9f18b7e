"""`callboard.run`: what it takes, what it returns, what it tells while it runs."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
import trio
import trio.testing
from support.agent_runs import AgentRunner
from support.fake_models import FakeModels, Reply
from support.messages import has_message, says

import callboard
from callboard.protocol.errors import ConfigError, CredentialsError, InvalidFile, Unpriced, UsageError
from callboard.protocol.events import TERMINAL, encode

HELLO = 'start: e\nnodes:\n  e: {type: end, output: "hello {{initial_prompt}}"}'
ASK = "start: a\nnodes:\n  a: {type: llm, prompt: p, next: e}\n  e: {type: end, output: done}"

# --- targets -------------------------------------------------------------------------------------------------


async def test_a_target_is_a_name_a_directory_or_a_file(
    agent_runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = agent_runner.agent(HELLO)
    (home / "other.yaml").write_text("name: other\n" + HELLO.replace("hello", "bye"))
    assert (await agent_runner.run("bob")).output == "hello bob"
    assert (await agent_runner.run("bob", target=home)).output == "hello bob"
    assert (await agent_runner.run("bob", target=str(home / "graph.yaml"))).output == "hello bob"
    assert (await agent_runner.run("bob", target=home / "other.yaml")).output == "bye bob"
    monkeypatch.chdir(home.parent)
    assert (await agent_runner.run("bob", target=Path("g"))).output == "hello bob"


async def test_an_unknown_target_names_its_neighbours(agent_runner: AgentRunner) -> None:
    agent_runner.agent(HELLO, name="greeter")
    with pytest.raises(UsageError, match=says("runs.finding._not_found", name="greter", agents="…'greeter'…")):
        await agent_runner.run(target="greter")


async def test_an_invalid_file_raises_with_all_its_problems(agent_runner: AgentRunner) -> None:
    agent_runner.agent("start: gone\nnodes:\n  a: {type: llm, next: nowhere}\n  e: {type: end}")
    with pytest.raises(InvalidFile) as caught:
        await agent_runner.run()
    assert {problem.code for problem in caught.value.problems} >= {"missing_start", "missing_node", "missing_key"}
    assert agent_runner.events == []


async def test_strict_makes_warnings_errors(agent_runner: AgentRunner) -> None:
    agent_runner.agent(HELLO + "\nextra: 1")
    assert (await agent_runner.run("bob")).output == "hello bob"
    assert [data.code for data in agent_runner.of("run.warning")] == ["unknown_key"]
    with pytest.raises(InvalidFile):
        await agent_runner.run(strict=True)


async def test_a_run_without_a_root_makes_one_of_its_own(tmp_path: Path, fake_model: FakeModels) -> None:
    config_dir = fake_model.config_dir(tmp_path / "c")
    home = config_dir / "agents" / "g"
    home.mkdir(parents=True)
    (home / "graph.yaml").write_text("name: g\n" + HELLO)
    assert (await callboard.run("g", "bob", config_dir=config_dir)).output == "hello bob"


async def test_a_run_finds_the_root_of_the_block_it_is_in(tmp_path: Path, fake_model: FakeModels) -> None:
    config_dir = fake_model.config_dir(tmp_path / "c")
    home = config_dir / "agents" / "g"
    home.mkdir(parents=True)
    (home / "graph.yaml").write_text("name: g\n" + HELLO)
    runs: set[str] = set()
    async with callboard.Root(config_dir=config_dir) as root:
        with root.bus.listen(lambda event: runs.add(event.run)):
            outcome = await callboard.run("g", "bob")
    assert outcome.run_id in runs


# --- what stands in the way ----------------------------------------------------------------------------------


async def test_a_missing_key_is_a_matter_of_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "agents" / "g"
    home.mkdir(parents=True)
    (home / "graph.yaml").write_text("name: g\n" + ASK)
    async with callboard.Root(config_dir=tmp_path) as root:
        with pytest.raises(CredentialsError) as caught:
            await callboard.run("g", model="openai:gpt-x", root=root)
    assert caught.value.exit_code == 3


async def test_a_refused_key_ends_the_run_with_3(agent_runner: AgentRunner) -> None:
    agent_runner.agent(ASK)
    agent_runner.models.script(Reply(status=401, error="no such key"))
    outcome = await agent_runner.run()
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert (outcome.error.code, outcome.exit_code) == ("credentials", 3)


async def test_a_config_file_with_errors_is_named_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("clients: nonsense\n")
    with pytest.raises(ConfigError, match=r"config\.yaml has 1 error"):
        async with callboard.Root(config_dir=tmp_path):
            pass


async def test_an_unknown_dialect_is_a_wrong_use(agent_runner: AgentRunner) -> None:
    agent_runner.agent(HELLO)
    with pytest.raises(
        UsageError,
        match=says("protocol.requests.RunRequest.__post_init__", COMPAT="standard, loki, devall", compat="locki"),
    ):
        await agent_runner.run(compat="locki")


async def test_upstream_that_stays_down_ends_the_run_with_6(
    agent_runner: AgentRunner, mock_clock: trio.testing.MockClock
) -> None:
    mock_clock.rate = 1000
    agent_runner.plain("instructions: talk", name="kid")
    agent_runner.models.answer_with(lambda request: Reply(status=503, error="down"))
    outcome = await agent_runner.run("go", target="kid")
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert (outcome.error.code, outcome.exit_code) == ("upstream", 6)
    assert len(agent_runner.models.requests) == 3


# --- state and variables -------------------------------------------------------------------------------------


async def test_state_replaces_keys_of_the_initial_state(agent_runner: AgentRunner) -> None:
    agent_runner.agent("initial_state: {a: 1, b: [1]}\nstart: e\nnodes:\n  e: {type: end, output: '{{a}}{{b}}{{c}}'}")
    outcome = await agent_runner.run(state={"b": {"x": (1, 2)}, "c": True, "initial_prompt": "ignored"})
    assert outcome.output == '1{"x":[1,2]}true'
    assert outcome.state["initial_prompt"] == ""
    assert (await agent_runner.run()).output == "1[1]"


async def test_state_that_is_not_json_is_a_wrong_use(agent_runner: AgentRunner) -> None:
    agent_runner.agent(HELLO)
    with pytest.raises(UsageError, match=says("protocol.requests._plain_state")):
        await agent_runner.run(state={"x": object()})


async def test_a_plain_agent_has_no_state_to_set(agent_runner: AgentRunner) -> None:
    agent_runner.plain("instructions: talk", name="kid")
    with pytest.raises(UsageError, match=says("runs.begin.check_fits.3", name="kid")):
        await agent_runner.run(target="kid", state={"x": 1})


async def test_variables_that_are_missing_or_unknown_are_named(agent_runner: AgentRunner) -> None:
    agent_runner.agent("variables: [{name: where, description: a place}]\n" + HELLO)
    with pytest.raises(
        UsageError,
        match=says("work.variables.resolve_variables.4", lines="  - where: a place", how="--var where=VALUE…"),
    ):
        await agent_runner.run()
    with pytest.raises(UsageError, match=says("work.variables._Found.__init__.2", name="were", hint="…'where'…")):
        await agent_runner.run(variables={"were": "here"})


# --- the outcome ---------------------------------------------------------------------------------------------


async def test_the_outcome_tells_the_whole_story(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        """
        start: d
        nodes:
          d: {type: script, script: d.sh, next: [a, b]}
          a: {type: llm, prompt: a, state_updates: {a: "{{output}}"}, next: e}
          b: {type: llm, prompt: b, model: fake:other, state_updates: {b: "{{output}}"}, next: e}
          e: {type: end, output: "{{a}}{{b}}"}
        """,
        d="echo '{}'",
    )
    outcome = await agent_runner.run("hi")
    wire = outcome.to_wire()
    assert next(iter(wire)) == "schema_version"
    assert wire["status"] == "done"
    assert wire["output"] == "okok"
    assert wire["state"] == {"initial_prompt": "hi", "a": "ok", "b": "ok"}
    assert wire["order"] == ["d", "a", "b", "e"]
    assert {id: time["visits"] for id, time in wire["nodes"].items()} == dict.fromkeys("dabe", 1)
    assert all(time["seconds"] >= 0 for time in wire["nodes"].values())
    assert wire["usage"] == {
        model: {"input_tokens": 10, "output_tokens": 5, "cost": 0.0, "priced": False}
        for model in ("fake:model", "fake:other")
    }
    assert wire["error"] is None
    assert wire["run_id"] == agent_runner.events[0].run
    assert "exit_code" not in wire


async def test_a_failed_run_keeps_the_state_of_its_last_whole_step(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        "start: a\nnodes:\n  a: {type: script, script: a.sh, next: b}\n"
        "  b: {type: script, script: b.sh, on_error: fail, next: e}\n  e: {type: end}",
        a="""echo '{"x": 1}'""",
        b="""echo '{"x": 2}'; exit 1""",
    )
    outcome = await agent_runner.run()
    assert (outcome.status, outcome.output, outcome.exit_code) == ("failed", "", 1)
    assert outcome.state == {"initial_prompt": "", "x": 1}
    assert outcome.order == ["a", "b"]
    assert outcome.error is not None
    assert outcome.error.node == "b"
    assert agent_runner.events[-1].data.outcome["error"]["code"] == "node_failed"


# --- events --------------------------------------------------------------------------------------------------


async def test_events_are_numbered_begin_with_the_start_and_end_with_the_outcome(agent_runner: AgentRunner) -> None:
    agent_runner.agent(ASK)
    outcome = await agent_runner.run("hi")
    agent_runner.check_stream()
    first, last = agent_runner.events[0], agent_runner.events[-1]
    assert (first.data.target, first.data.name, first.data.dialect) == ("g", "g", "graph")
    assert (first.data.model, first.data.prompt) == ("fake:model", "hi")
    assert last.kind == "run.finished"
    assert last.data.outcome == outcome.to_wire()
    assert {event.run for event in agent_runner.events} == {outcome.run_id}
    for event in agent_runner.events:
        assert encode(event).startswith(b'{"schema_version":1,')


async def test_every_actor_of_a_run_ends_exactly_once(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        "start: d\nnodes:\n  d: {type: script, script: d.sh, next: [a, b]}\n"
        "  a: {type: llm, prompt: p, next: e}\n"
        "  b: {type: script, script: bad.sh, state_updates: {}, on_error: fail, next: e}\n"
        "  e: {type: end}",
        d="echo '{}'",
        bad="exit 1",
    )
    await agent_runner.run()
    spawned = [event.actor for event in agent_runner.events if event.kind == "actor.spawned"]
    ended = [event.actor for event in agent_runner.events if event.kind in ("actor.stopped", "actor.failed")]
    assert sorted(spawned) == sorted(ended)
    assert len(set(spawned)) == len(spawned)
    parents = {event.actor: event.parent for event in agent_runner.events}
    assert all(parents[actor] in {*spawned, "/"} for actor in spawned)


async def test_revisited_nodes_are_actors_of_their_own(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        "start: a\nnodes:\n  a: {type: script, script: a.sh, routes: [a], next: e}\n  e: {type: end}",
        a="""printf %s "$GRAPH_STATE" | jq -c 'if .n then {} else {n: 1, _next: "a"} end'""",
    )
    outcome = await agent_runner.run()
    assert [event.actor for event in agent_runner.events if event.kind == "node.entered"] == [
        f"/{outcome.run_id}/g/a",
        f"/{outcome.run_id}/g/a#2",
        f"/{outcome.run_id}/g",
    ]
    assert [data.visit for data in agent_runner.of("node.entered")] == [1, 2, 1]


async def test_snapshots_tell_keys_and_size_and_never_values(agent_runner: AgentRunner) -> None:
    agent_runner.agent("initial_state: {secret: hunter2}\n" + HELLO)
    await agent_runner.run("x")
    (step,) = agent_runner.of("step.started")
    assert step.keys == ["initial_prompt", "secret"]
    assert step.bytes == len('{"secret":"hunter2","initial_prompt":"x"}')
    for event in agent_runner.events:
        if event.kind not in TERMINAL:
            assert b"hunter2" not in encode(event)
    agent_runner.events.clear()
    agent_runner.agent("settings: {log_state_snapshots: false}\n" + HELLO)
    await agent_runner.run("x")
    (step,) = agent_runner.of("step.started")
    assert (step.keys, step.bytes) == ([], 0)


@pytest.mark.parametrize(("level", "shown"), [(5, True), (logging.DEBUG, False)])
async def test_the_state_itself_is_logged_at_trace_level_only(
    agent_runner: AgentRunner, caplog: pytest.LogCaptureFixture, level: int, shown: bool
) -> None:
    agent_runner.agent("initial_state: {secret: hunter2}\n" + HELLO)
    with caplog.at_level(level, "callboard.graph"):
        await agent_runner.run("x")
    assert ("hunter2" in caplog.text) is shown


async def test_the_time_of_every_node_is_summed_up(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        "start: a\nnodes:\n  a: {type: script, script: a.sh, routes: [a], next: e}\n  e: {type: end}",
        a="""printf %s "$GRAPH_STATE" | jq -c 'if .n then {} else {n: 1, _next: "a"} end'""",
    )
    outcome = await agent_runner.run()
    (finished,) = agent_runner.of("graph.finished")
    visits, total, longest = finished.timing["a"]
    assert visits == outcome.nodes["a"].visits == 2
    assert total == outcome.nodes["a"].seconds
    assert total / 2 <= longest <= total


async def test_an_exception_of_on_event_ends_the_run_and_is_raised(agent_runner: AgentRunner) -> None:
    agent_runner.agent(HELLO)
    seen: list[str] = []

    def broken(event: callboard.Event) -> None:
        seen.append(event.kind)
        raise ZeroDivisionError

    with agent_runner.root.bus.listen(agent_runner.events.append), pytest.raises(ZeroDivisionError):
        await callboard.run("g", "bob", root=agent_runner.root, on_event=broken)
    assert seen == ["run.started"]
    assert [event.kind for event in agent_runner.events if event.kind.startswith("run.")][-1] == "run.cancelled"


# --- cancelled -----------------------------------------------------------------------------------------------


async def test_a_cancelled_caller_gets_cancelled_and_nothing_is_left(agent_runner: AgentRunner) -> None:
    agent_runner.agent(ASK)
    agent_runner.models.script(Reply("never", hold=trio.Event()))
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def cancel() -> None:
                await agent_runner.models.arrived(1)
                scope.cancel()

            nursery.start_soon(cancel)
            await agent_runner.run()
    assert scope.cancelled_caught
    assert [child for child in agent_runner.root.kernel.actor.children if child.name.startswith("run-")] == []
    last = agent_runner.events[-1]
    assert last.kind == "run.cancelled"
    assert last.data.outcome["status"] == "cancelled"
    agent_runner.check_stream()


async def test_a_stopping_root_ends_its_runs_as_cancelled_with_the_state_so_far(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        "start: s\nnodes:\n  s: {type: script, script: s.sh, next: a}\n  a: {type: llm, prompt: p, next: e}\n"
        "  e: {type: end}",
        s="""echo '{"x": 1}'""",
    )
    agent_runner.models.script(Reply("never", hold=trio.Event()))
    async with trio.open_nursery() as nursery:

        async def stop() -> None:
            await agent_runner.models.arrived(1)
            agent_runner.root.begin_stop()

        nursery.start_soon(stop)
        outcome = await agent_runner.run()
    assert (outcome.status, outcome.exit_code, outcome.output, outcome.error) == ("cancelled", 130, "", None)
    assert outcome.state == {"initial_prompt": "", "x": 1}
    assert outcome.order == ["s", "a"]
    agent_runner.check_stream()


async def test_a_root_that_stops_admits_no_run(agent_runner: AgentRunner) -> None:
    agent_runner.agent(HELLO)
    agent_runner.root.begin_stop()
    with pytest.raises(callboard.CallboardError, match=says("supervisors.actor.Actor.adopt")):
        await agent_runner.run()


# --- limits --------------------------------------------------------------------------------------------------

THREE = """
start: a
nodes:
  a: {type: llm, prompt: p, next: b}
  b: {type: llm, prompt: p, fallback: e, next: c}
  c: {type: llm, prompt: p, fallback: e, next: e}
  e: {type: end}
"""


@pytest.mark.parametrize(
    ("limits", "asked", "code", "text"),
    [
        (
            callboard.Limits(max_turns=2),
            2,
            "max_turns",
            "the run has used all of its 2 model turns (`max_turns`, --max-turns)",
        ),
        (
            callboard.Limits(max_turns=0),
            0,
            "max_turns",
            "the run has used all of its 0 model turns (`max_turns`, --max-turns)",
        ),
        (
            callboard.Limits(max_tokens=20),
            2,
            "budget",
            "the run has used 30 of its 20 tokens (`max_tokens`, --max-tokens)",
        ),
        (
            callboard.Limits(max_tokens=30),
            2,
            "budget",
            "the run has used 30 of its 30 tokens (`max_tokens`, --max-tokens)",
        ),
    ],
)
async def test_limits_end_the_run_with_4_whatever_fallbacks_there_are(
    agent_runner: AgentRunner, compat: str, limits: callboard.Limits, asked: int, code: str, text: str
) -> None:
    agent_runner.agent(THREE)
    outcome = await agent_runner.run(compat=compat, limits=limits)
    assert len(agent_runner.models.requests) == asked
    assert outcome.error is not None
    assert (outcome.error.code, outcome.exit_code) == (code, 4)
    assert text in outcome.error.message


async def test_max_cost_counts_money(tmp_path: Path, fake_model: FakeModels) -> None:
    priced = fake_model.config().replace(
        '"api_key": "sk-test"',
        '"api_key": "sk-test", "models": [{"name": "model", "input_price": 1000, "output_price": 2000}]',
    )
    (tmp_path / "config.yaml").write_text(priced)
    home = tmp_path / "agents" / "g"
    home.mkdir(parents=True)
    (home / "graph.yaml").write_text("name: g\n" + THREE)
    async with callboard.Root(config_dir=tmp_path) as root:
        outcome = await callboard.run("g", root=root, limits=callboard.Limits(max_cost=0.03))
    assert len(fake_model.requests) == 2
    assert outcome.usage["fake:model"].cost == pytest.approx(0.04)
    assert outcome.exit_code == 4
    assert outcome.error is not None
    assert has_message(
        outcome.error.message,
        "work.spending.accounts.Account._check_spent.3",
        name="…the run",
        cost="0.0400",
        max_cost="0.03",
        _key="`max_cost`, --max-cost",
    )


async def test_a_limit_in_money_refuses_a_model_without_a_price_before_anything_is_asked(
    agent_runner: AgentRunner,
) -> None:
    agent_runner.agent(THREE)
    with pytest.raises(Unpriced, match=says("protocol.errors.Unpriced.of", model="fake:model")) as no:
        await agent_runner.run(limits=callboard.Limits(max_cost=5))
    assert no.value.exit_code == 3
    assert agent_runner.models.requests == []


async def test_with_allow_unpriced_it_goes_on_and_says_that_the_cost_is_not_known(agent_runner: AgentRunner) -> None:
    agent_runner.agent(THREE)
    outcome = await agent_runner.run(limits=callboard.Limits(max_cost=5), allow_unpriced=True)
    assert outcome.status == "done"
    assert outcome.cost_complete is False
    assert outcome.usage["fake:model"].priced is False
    assert outcome.usage["fake:model"].cost == 0
    assert outcome.to_wire()["priced"] is False


async def test_a_child_s_model_without_a_price_is_refused_at_its_own_first_request(
    tmp_path: Path, fake_model: FakeModels
) -> None:
    config = fake_model.config().replace(
        '"api_key": "sk-test"',
        '"api_key": "sk-test", "models": [{"name": "model", "input_price": 1, "output_price": 2}, {"name": "other"}]',
    )
    (tmp_path / "config.yaml").write_text(config)
    agents = {
        "boss": "name: boss\nstart: a\nnodes:\n  a: {type: llm, prompt: p, next: b}\n"
        "  b: {type: agent, agent: child, prompt: p, next: e}\n  e: {type: end}\n",
        "child": "name: child\nstart: a\nnodes:\n  a: {type: llm, model: 'fake:other', prompt: p, next: e}\n"
        "  e: {type: end}\n",
    }
    for name, text in agents.items():
        (tmp_path / "agents" / name).mkdir(parents=True)
        (tmp_path / "agents" / name / "graph.yaml").write_text(text)
    async with callboard.Root(config_dir=tmp_path) as root:
        outcome = await callboard.run("boss", root=root, limits=callboard.Limits(max_cost=1))
    assert [request.json["model"] for request in fake_model.requests] == ["model"]
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert has_message(outcome.error.message, "protocol.errors.Unpriced.of", model="…'fake:other")


async def test_max_turns_counts_the_requests_that_are_under_way(agent_runner: AgentRunner) -> None:
    nodes = "".join(f"  {id}: {{type: llm, prompt: p, next: e}}\n" for id in "abcd")
    agent_runner.agent(
        f"start: s\nnodes:\n  s: {{type: script, script: s.sh, next: [a, b, c, d]}}\n{nodes}  e: {{type: end}}",
        s="echo '{}'",
    )
    outcome = await agent_runner.run(limits=callboard.Limits(max_turns=2))
    assert len(agent_runner.models.requests) == 2
    assert outcome.exit_code == 4
    assert outcome.error is not None
    assert outcome.error.message.count("the run has used all of its 2 model turns (`max_turns`, --max-turns)") == 2


async def test_a_timeout_of_the_run_ends_it_with_4(
    agent_runner: AgentRunner, mock_clock: trio.testing.MockClock
) -> None:
    agent_runner.plain("instructions: talk", name="kid")
    agent_runner.models.script(Reply("never", hold=trio.Event()))
    async with trio.open_nursery() as nursery:

        async def pass_the_time() -> None:
            await agent_runner.models.arrived(1)
            mock_clock.jump(3)

        nursery.start_soon(pass_the_time)
        outcome = await agent_runner.run("go", target="kid", limits=callboard.Limits(timeout=3))
    assert outcome.error is not None
    assert re.fullmatch(says("runs.execution.Execution._play", seconds=3), outcome.error.message)
    assert (outcome.error.code, outcome.exit_code) == ("timeout", 4)
    agent_runner.check_stream()


async def test_an_llm_agent_needs_a_prompt(agent_runner: AgentRunner) -> None:
    agent_runner.plain("instructions: talk", name="kid")
    with pytest.raises(UsageError, match=says("runs.begin.check_fits.5", name="kid")):
        await agent_runner.run(" ", target="kid")
    assert agent_runner.models.requests == []


@pytest.mark.parametrize("limit", [{"timeout": -1}, {"max_turns": -2}, {"max_cost": float("nan")}])
def test_a_limit_that_nothing_could_keep_is_refused(limit: dict[str, float]) -> None:
    (name,) = limit
    with pytest.raises(UsageError, match=rf"Limits\({name}=.*at least 0"):
        callboard.Limits(**limit)
