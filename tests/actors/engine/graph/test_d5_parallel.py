"""Super-steps: cases 47 to 60 of Loki's conformance list, and what a step that fails leaves behind."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from support.agent_runs import AgentRunner
from support.fake_models import FakeModels, Reply
from support.messages import fragment, has_message

import callboard

DIAMOND = """
name: t
start: d
{reducers}
nodes:
  d:  {{type: script, script: d.sh, state_updates: {{}}, next: [wa, wb]}}
  wa: {{type: script, script: a.sh, state_updates: {{}}, next: j}}
  wb: {{type: script, script: b.sh, state_updates: {{}}, next: j}}
  j:  {{type: end, output: "{{{{results}}}}"}}
"""
APPENDING = DIAMOND.format(reducers="reducers: {results: append}")
PRINTS = {
    "d": "echo '{}'",
    "a": """echo '{"results": "alpha"}'""",
    "b": """echo '{"results": "beta"}'""",
}


async def test_case_47_a_diamond_meets_once_and_merges_by_name(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(APPENDING, **PRINTS)
    outcome = await agent_runner.run(compat=compat)
    assert outcome.output == '["alpha","beta"]'
    assert outcome.order == ["d", "wa", "wb", "j"]
    assert outcome.nodes["j"].visits == 1
    agent_runner.check_stream()


async def test_case_47_the_order_does_not_depend_on_who_is_faster(
    agent_runner: AgentRunner, fake_model: FakeModels
) -> None:
    agent_runner.agent(
        """
        start: d
        reducers: {results: append}
        nodes:
          d:  {type: script, script: d.sh, state_updates: {}, next: [wa, wb]}
          wa: {type: llm, prompt: alpha, state_updates: {results: "{{output}}"}, next: j}
          wb: {type: llm, prompt: beta, state_updates: {results: "{{output}}"}, next: j}
          j:  {type: end, output: "{{results}}"}
        """,
        d="echo '{}'",
    )
    beta_is_done = trio.Event()
    fake_model.answer_with(
        lambda request: Reply("ALPHA", hold=beta_is_done) if request.prompt == "alpha" else Reply("BETA")
    )

    def watch(event: callboard.Event) -> None:
        if event.kind == "node.exited" and event.data.node == "wb":
            beta_is_done.set()

    outcome = await agent_runner.run(on_event=watch)
    assert outcome.output == '["ALPHA","BETA"]'


async def test_case_48_two_writers_without_a_reducer_fail_the_run(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(DIAMOND.format(reducers=""), **PRINTS)
    outcome = await agent_runner.run(compat=compat)
    assert outcome.error is not None
    assert has_message(outcome.error.message, "engine.graph.reducers.merge_writes.2", key="results", nodes=2)
    assert "wa, wb" in outcome.error.message
    assert (outcome.error.code, outcome.exit_code) == ("graph", 1)
    assert outcome.state == {"initial_prompt": ""}


async def test_case_49_one_branch_fails_and_the_other_still_runs_to_its_end(agent_runner: AgentRunner) -> None:
    agent_runner.agent(APPENDING, **{**PRINTS, "b": "echo boom >&2; exit 1"})
    outcome = await agent_runner.run(compat="loki")
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.message.startswith("at node 'wb': Script 'b.sh' failed with exit code 1")
    assert outcome.output == ""
    exited = {data.node: data.error for data in agent_runner.of("node.exited")}
    assert exited["wa"] is None
    assert exited["wb"] is not None
    assert "results" not in outcome.state


async def test_case_49_in_standard_the_branch_that_failed_goes_on_to_the_join(agent_runner: AgentRunner) -> None:
    agent_runner.agent(APPENDING, **{**PRINTS, "b": "echo boom >&2; exit 1"})
    assert (await agent_runner.run(compat="standard")).output == '["alpha"]'
    assert agent_runner.warnings == ["node_failed"]


async def test_case_49_every_branch_that_failed_is_named(agent_runner: AgentRunner) -> None:
    agent_runner.agent(APPENDING, **{**PRINTS, "a": "echo one >&2; exit 1", "b": "echo two >&2; exit 2"})
    outcome = await agent_runner.run(compat="loki")
    assert outcome.error is not None
    assert "at node 'wa': Script 'a.sh' failed with exit code 1:\none" in outcome.error.message
    assert "at node 'wb': Script 'b.sh' failed with exit code 2:\ntwo" in outcome.error.message


async def test_case_50_two_end_nodes_in_one_step_fail_the_run_and_merge_nothing(
    agent_runner: AgentRunner, compat: str
) -> None:
    agent_runner.agent(
        """
        start: d
        settings: {validate_before_run: false}
        nodes:
          d:  {type: script, script: d.sh, next: [end_a, end_b, w]}
          w:  {type: script, script: w.sh, state_updates: {}, next: end_a}
          end_a: {type: end, output: a}
          end_b: {type: end, output: b}
        """,
        d="echo '{}'",
        w="""echo '{"half": "done"}'""",
    )
    outcome = await agent_runner.run(compat=compat)
    assert outcome.error is not None
    assert outcome.error.message.startswith(
        fragment("engine.graph.decider.GraphDecider._next_step", ends="end_a, end_b")
    )
    assert "half" not in outcome.state


EARLY_END = """
start: d
nodes:
  d: {type: script, script: d.sh, next: [e, w]}
  w: {type: script, script: w.sh, state_updates: {}, next: x}
  x: {type: script, script: x.sh, next: e}
  e: {type: end, output: "end {{w}}{{x}}"}
"""
EARLY = {"d": "echo '{}'", "w": """echo '{"w": 1}'""", "x": """echo '{"x": 2}'"""}


async def test_case_51_an_end_node_ends_the_graph_after_the_step_of_the_others(
    agent_runner: AgentRunner, compat: str
) -> None:
    agent_runner.agent(EARLY_END, **EARLY)
    outcome = await agent_runner.run(compat=compat)
    assert outcome.output == "end 1"
    assert "x" not in outcome.nodes
    assert outcome.order == ["d", "e", "w"]


async def test_case_51_standard_warns_of_what_was_dropped_and_loki_does_not(agent_runner: AgentRunner) -> None:
    agent_runner.agent(EARLY_END, **EARLY)
    await agent_runner.run(compat="loki")
    assert agent_runner.warnings == []
    await agent_runner.run(compat="standard")
    assert agent_runner.warnings == ["lanes_dropped"]
    warning = next(data for data in agent_runner.of("run.warning") if data.code == "lanes_dropped")
    assert has_message(warning.message, "engine.graph.decider.GraphDecider._finish", id="e", dropped="x")


async def test_case_52_unequal_branches_visit_their_join_twice(agent_runner: AgentRunner, compat: str) -> None:
    # The lane that comes first must not end the graph before the second comes, so it is sent around.
    agent_runner.agent(
        """
        start: d
        nodes:
          d: {type: script, script: n.sh, next: [a, b]}
          a: {type: script, script: n.sh, state_updates: {}, next: j}
          b: {type: script, script: n.sh, state_updates: {}, next: c}
          c: {type: script, script: n.sh, next: j}
          j: {type: script, script: count.sh, routes: [w], next: e}
          w: {type: script, script: n.sh, next: v}
          v: {type: script, script: n.sh, next: e}
          e: {type: end, output: "{{count}}"}
        """,
        n="echo '{}'",
        count="""
        n=$(printf %s "$GRAPH_STATE" | jq '(.count // 0) + 1')
        if [ $n = 1 ]; then echo "{\\"count\\": $n, \\"_next\\": \\"w\\"}"; else echo "{\\"count\\": $n}"; fi
        """,
    )
    outcome = await agent_runner.run(compat=compat)
    assert outcome.nodes["j"].visits == 2
    assert outcome.output == "2"


REDUCED = """
start: a
reducers: {{{reducer}}}
initial_state: {{{initial}}}
nodes:
  a: {{type: script, script: a.sh, next: e}}
  e: {{type: end}}
"""


@pytest.mark.parametrize(
    ("reducer", "initial", "printed", "key", "value"),
    [
        ("n: sum", "n: 1", '{"n": 3}', "n", 4),
        ("n: sum", "n: 1", '{"n": 1}', "n", 1),
        ("n: sum", "", '{"n": 3}', "n", 3),
        ("r: append", "r: [1]", '{"r": [1, 2]}', "r", [1, [1, 2]]),
        ("r: extend", "r: [1]", '{"r": [1, 2]}', "r", [1, 1, 2]),
        ("t: concat", 't: ""', '{"t": "x"}', "t", "x"),
        ("o: merge", "o: {a: 1}", '{"o": {"a": 2, "b": 3}}', "o", {"a": 2, "b": 3}),
        ("m: max", "m: 3", '{"m": 2.5}', "m", 3),
        ("s: sum", "s: 1.5", '{"s": 1.5}', "s", 1.5),
        ("s: sum", "s: 1.5", '{"s": 2.5}', "s", 4),
        ("o: overwrite", "o: a", '{"o": "b"}', "o", "b"),
    ],
)
@pytest.mark.sample(8)
async def test_cases_53_54_55_reducers_apply_to_a_lone_writer(
    agent_runner: AgentRunner, compat: str, reducer: str, initial: str, printed: str, key: str, value: Any
) -> None:
    agent_runner.agent(REDUCED.format(reducer=reducer, initial=initial), a=f"echo '{printed}'")
    outcome = await agent_runner.run(compat=compat)
    assert outcome.state[key] == value
    assert type(outcome.state[key]) is type(value)


@pytest.mark.parametrize(
    ("reducer", "initial", "a", "b", "value"),
    [
        ("concat", '""', '"x"', '"y"', "x\ny"),
        ("overwrite", "0", '"a"', '"b"', "b"),
        ("sum", "0", "1.5", "1.5", 3),
        ("append", "[]", "1", "[2]", [1, [2]]),
    ],
)
@pytest.mark.sample(3)
async def test_case_55_reducers_fold_branches_in_the_order_of_their_names(
    agent_runner: AgentRunner, compat: str, reducer: str, initial: str, a: str, b: str, value: Any
) -> None:
    agent_runner.agent(
        f"""
        start: d
        reducers: {{k: {reducer}}}
        initial_state: {{k: {initial}}}
        nodes:
          d: {{type: script, script: d.sh, next: [b, a]}}
          a: {{type: script, script: a.sh, state_updates: {{}}, next: e}}
          b: {{type: script, script: b.sh, state_updates: {{}}, next: e}}
          e: {{type: end}}
        """,
        d="echo '{}'",
        a=f"""echo '{{"k": {a}}}'""",
        b=f"""echo '{{"k": {b}}}'""",
    )
    assert (await agent_runner.run(compat=compat)).state["k"] == value


@pytest.mark.parametrize(("initial", "kind"), [('"s"', "string"), ("null", "null")])
async def test_case_56_append_wants_an_array(agent_runner: AgentRunner, compat: str, initial: str, kind: str) -> None:
    agent_runner.agent(REDUCED.format(reducer="r: append", initial=f"r: {initial}"), a="""echo '{"r": 1}'""")
    outcome = await agent_runner.run(compat=compat)
    assert outcome.error is not None
    text = f"reducer 'append' requires an array (or absent) for the current value, got {kind}"
    assert text in outcome.error.message
    assert outcome.exit_code == 1


async def test_case_57_the_visit_cap_ends_a_loop(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        start: a
        settings: {max_loop_iterations: 3}
        nodes:
          a: {type: script, script: a.sh, routes: [a], fallback: e, next: e}
          e: {type: end}
        """,
        a="""echo '{"_next": "a"}'""",
    )
    outcome = await agent_runner.run(compat=compat)
    assert outcome.error is not None
    text = fragment("engine.graph.decider.GraphDecider._enter", id="a", visits="4", cap="3")
    assert outcome.error.message == text
    assert outcome.exit_code == 1
    assert outcome.order == ["a", "a", "a"]


async def test_case_57_every_node_that_loops_is_named(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        start: d
        settings: {max_loop_iterations: 1}
        nodes:
          d: {type: script, script: d.sh, next: [a, b]}
          a: {type: script, script: a.sh, state_updates: {}, routes: [a], next: e}
          b: {type: script, script: b.sh, state_updates: {}, routes: [b], next: e}
          e: {type: end}
        """,
        d="echo '{}'",
        a="""echo '{"_next": "a"}'""",
        b="""echo '{"_next": "b"}'""",
    )
    outcome = await agent_runner.run(compat=compat)
    assert outcome.error is not None
    assert outcome.error.message.splitlines() == [
        fragment("engine.graph.decider.GraphDecider._enter", id="a", visits="2", cap="1"),
        fragment("engine.graph.decider.GraphDecider._enter", id="b", visits="2", cap="1"),
    ]


async def test_case_58_the_graphs_timeout_interrupts_the_node(
    agent_runner: AgentRunner, compat: str, mock_clock: trio.testing.MockClock
) -> None:
    agent_runner.agent(
        """
        start: a
        settings: {timeout: 1}
        nodes:
          a: {type: llm, prompt: p, fallback: e, next: e}
          e: {type: end}
        """
    )
    agent_runner.models.script(Reply("late", hold=trio.Event()))

    async with trio.open_nursery() as nursery:

        async def pass_the_time() -> None:
            await agent_runner.models.arrived(1)
            mock_clock.jump(1)

        nursery.start_soon(pass_the_time)
        outcome = await agent_runner.run(compat=compat)
    assert outcome.error is not None
    assert has_message(
        outcome.error.message, "engine.graph.decider.GraphDecider.on", name="g", limit=1, frontier="['a']"
    )
    assert (outcome.error.code, outcome.exit_code) == ("timeout", 4)
    await agent_runner.models.until(lambda server: server.cut == 1)
    agent_runner.check_stream()


async def test_case_59_an_empty_next_ends_in_nowhere(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        start: a
        settings: {validate_before_run: false}
        nodes:
          a: {type: script, script: a.sh, next: []}
          e: {type: end}
        """,
        a="echo '{}'",
    )
    outcome = await agent_runner.run(compat=compat)
    assert outcome.error is not None
    assert has_message(outcome.error.message, "engine.graph.decider.GraphDecider._next_step.2", name="g")


@pytest.mark.parametrize("kind", ["script", "llm", "map"])
async def test_a_node_without_next_that_is_no_end_fails_the_run(
    agent_runner: AgentRunner, compat: str, kind: str
) -> None:
    works = {
        "script": "script: a.sh",
        "llm": "prompt: p",
        "map": 'over: "{{l}}", as: x, branch: b, collect_into: r',
    }
    agent_runner.agent(
        f"""
        start: a
        initial_state: {{l: []}}
        settings: {{validate_before_run: false}}
        nodes:
          a: {{type: {kind}, {works[kind]}}}
          b: {{type: script, script: a.sh}}
          e: {{type: end}}
        """,
        a="echo '{}'",
    )
    outcome = await agent_runner.run(compat=compat)
    assert outcome.error is not None
    assert f"{kind} node 'a' has no `next` and is not an end node" in outcome.error.message


WORKERS = """
start: d
settings: {{max_concurrency: {limit}}}
nodes:
  d: {{type: script, script: d.sh, next: [a, b, c]}}
  a: {{type: llm, prompt: a, next: e}}
  b: {{type: llm, prompt: b, next: e}}
  c: {{type: llm, prompt: c, next: e}}
  e: {{type: end, output: done}}
"""


async def test_case_60_a_limit_of_one_runs_one_after_the_other(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(WORKERS.format(limit=1), d="echo '{}'")
    await agent_runner.run(compat=compat)
    middle = [
        (event.kind, event.data.node) for event in agent_runner.events if event.kind in ("node.entered", "node.exited")
    ][2:-2]
    assert middle == [(kind, node) for node in "abc" for kind in ("node.entered", "node.exited")]


async def test_case_60_a_limit_of_three_runs_three_at_once(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(WORKERS.format(limit=3), d="echo '{}'")
    all_are_here = trio.Event()
    agent_runner.models.answer_with(lambda request: Reply("ok", hold=all_are_here))
    async with trio.open_nursery() as nursery:

        async def wait_for_all() -> None:
            await agent_runner.models.arrived(3)
            all_are_here.set()

        nursery.start_soon(wait_for_all)
        outcome = await agent_runner.run(compat=compat)
    assert outcome.output == "done"


async def test_a_waiting_node_starts_as_soon_as_a_place_is_free(agent_runner: AgentRunner) -> None:
    agent_runner.agent(WORKERS.format(limit=2), d="echo '{}'")
    late = trio.Event()
    agent_runner.models.answer_with(lambda request: Reply("ok", hold=late) if request.prompt == "a" else Reply("ok"))
    async with trio.open_nursery() as nursery:

        async def hold_a_until_c_came() -> None:
            await agent_runner.models.until(lambda server: any(request.prompt == "c" for request in server.requests))
            late.set()

        nursery.start_soon(hold_a_until_c_came)
        assert (await agent_runner.run()).output == "done"


async def test_nodes_work_on_a_snapshot_and_do_not_see_their_siblings(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        start: d
        nodes:
          d: {type: script, script: d.sh, next: [a, b]}
          a: {type: script, script: a.sh, state_updates: {}, next: b2}
          b: {type: script, script: b.sh, state_updates: {}, next: b2}
          b2: {type: end, output: "{{b_saw}}"}
        """,
        d="""echo '{"k": 0}'""",
        a="""echo '{"k": 1}'""",
        b="""printf '{"b_saw": %s}' "$(printf %s "$GRAPH_STATE" | jq .k)" """,
    )
    outcome = await agent_runner.run(compat=compat)
    assert outcome.output == "0"
    assert outcome.state["k"] == 1
