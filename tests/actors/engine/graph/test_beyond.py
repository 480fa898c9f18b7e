"""What Callboard adds to Loki's graphs: error policies, joins, typed updates."""

from __future__ import annotations

import pytest
from support.agent_runs import AgentRunner
from support.fake_models import Reply
from support.messages import has_message

BAD = Reply(status=400, error="bad request")

# --- on_error ------------------------------------------------------------------------------------------------

LANES = """
start: d
nodes:
  d: {{type: script, script: d.sh, next: [a, b, c]}}
  a: {{type: script, script: a.sh, on_error: {policy}, state_updates: {{a_said: "{{{{output}}}}"}}, next: e}}
  b: {{type: llm, prompt: bad, on_error: {policy}, state_updates: {{b_said: "{{{{output}}}}"}}, next: e}}
  c: {{type: script, script: c.sh, on_error: {policy}, state_updates: {{}}, next: e}}
  e: {{type: end, output: "{{{{c}}}}|{{{{a_said}}}}|{{{{b_said}}}}"}}
"""
LANE_SCRIPTS = {"d": "echo '{}'", "a": "echo boom >&2; exit 1", "c": """echo '{"c": "kept"}'"""}


async def test_on_error_continue_keeps_the_siblings_and_goes_on_with_the_error_as_output(
    agent_runner: AgentRunner, compat: str
) -> None:
    agent_runner.agent(LANES.format(policy="continue"), **LANE_SCRIPTS)
    agent_runner.models.script(BAD)
    outcome = await agent_runner.run(compat=compat, state={"output": None})
    kept, a_said, b_said = outcome.output.split("|")
    assert kept == "kept"
    assert a_said == "Script 'a.sh' failed with exit code 1:\nboom"
    assert b_said.startswith("LLM node failed: ")
    assert agent_runner.warnings == ["node_failed", "node_failed"]
    assert "errors" not in outcome.state


async def test_on_error_collect_keeps_the_siblings_and_lists_every_error(
    agent_runner: AgentRunner, compat: str
) -> None:
    agent_runner.agent(LANES.format(policy="collect"), **LANE_SCRIPTS)
    agent_runner.models.script(BAD)
    outcome = await agent_runner.run(compat=compat, state={"output": None})
    assert outcome.state["c"] == "kept"
    assert [(error["node"], error["code"]) for error in outcome.state["errors"]] == [
        ("a", "node_failed"),
        ("b", "model"),
    ]
    assert "boom" in outcome.state["errors"][0]["error"]


async def test_on_error_fail_is_the_end_even_where_standard_would_go_on(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(LANES.format(policy="fail"), **LANE_SCRIPTS)
    agent_runner.models.script(BAD)
    outcome = await agent_runner.run(compat=compat, state={"output": None})
    assert outcome.error is not None
    assert "at node 'a'" in outcome.error.message
    assert "at node 'b'" in outcome.error.message
    assert "c" not in outcome.state


async def test_collected_errors_add_up_over_the_steps(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        start: a
        nodes:
          a: {type: script, script: bad.sh, on_error: collect, next: b}
          b: {type: script, script: bad.sh, on_error: collect, next: e}
          e: {type: end, output: "{{errors[0].node}}{{errors[1].node}}"}
        """,
        bad="exit 1",
    )
    assert (await agent_runner.run(compat=compat)).output == "ab"


async def test_a_fallback_goes_before_on_error(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        start: a
        nodes:
          a: {type: script, script: bad.sh, on_error: collect, fallback: f, next: e}
          e: {type: end, output: wrong}
          f: {type: end, output: fallback}
        """,
        bad="exit 1",
    )
    outcome = await agent_runner.run(compat=compat)
    assert outcome.output == "fallback"
    assert "errors" not in outcome.state


ITEMS = """
start: m
nodes:
  m: {{type: map, over: "{{{{items}}}}", as: item, branch: b, collect_into: out, on_error: {policy}, next: e}}
  b: {{type: script, script: b.sh}}
  e: {{type: end, output: "{{{{out}}}}"}}
"""
ODD_FAILS = """
n=$(printf %s "$GRAPH_STATE" | jq .item)
[ $((n % 2)) = 0 ] || { echo "odd $n" >&2; exit 1; }
echo "{\\"output\\": $n}"
"""


async def test_a_map_that_continues_leaves_out_what_failed(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(ITEMS.format(policy="continue"), b=ODD_FAILS)
    outcome = await agent_runner.run(compat=compat, state={"items": [0, 1, 2, 3]})
    assert outcome.state["out"] == [0, 2]
    assert agent_runner.warnings == ["item_failed", "item_failed"]


async def test_a_map_that_collects_puts_the_error_in_the_items_place(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(ITEMS.format(policy="collect"), b=ODD_FAILS)
    outcome = await agent_runner.run(compat=compat, state={"items": [0, 1, 2]})
    zero, one, two = outcome.state["out"]
    assert (zero, two) == (0, 2)
    assert (one["index"], one["code"]) == (1, "node_failed")
    assert "odd 1" in one["error"]


async def test_a_question_nobody_answers_is_no_failure_to_continue_from(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        start: i
        nodes:
          i: {type: input, question: q, on_error: continue, next: e}
          e: {type: end}
        """
    )
    assert (await agent_runner.run(compat=compat)).exit_code == 5


async def test_an_input_refused_may_go_on_with_the_problem_as_output(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        """
        start: i
        nodes:
          i:
            type: input
            question: q
            validation: "len(input) > 3"
            on_error: continue
            state_updates: {said: "{{output}}"}
            next: e
          e: {type: end, output: "{{said}}"}
        """
    )
    assert has_message(
        (await agent_runner.run(answers=["ab"])).output,
        "engine.graph.input_validation.LengthRule.problem",
        text="len(input) > 3",
        answer=2,
    )


# --- join: all -----------------------------------------------------------------------------------------------

NOTHING = {"n": "echo '{}'"}


def lanes(graph: str) -> str:
    """Short hand: `a > b c` is a script node a that leads to b and c; `a! >` joins; `e .` ends."""
    lines = []
    for line in graph.strip().splitlines():
        name, _, targets = line.strip().partition(" ")
        join = ", join: all" if name.endswith("!") else ""
        name = name.rstrip("!")
        if targets == ".":
            lines.append(f"  {name}: {{type: end, output: {name}{join}}}")
        else:
            following = ", ".join(targets.removeprefix("> ").split())
            lines.append(f"  {name}: {{type: script, script: n.sh, state_updates: {{}}, next: [{following}]{join}}}")
    return "start: s\nnodes:\n" + "\n".join(lines)


@pytest.mark.parametrize(
    ("graph", "order"),
    [
        pytest.param("s > a b\na > j\nb > c\nc > j\nj! > e\ne .", "s a b c j e", id="unequal branches meet once"),
        pytest.param(
            "s > a b\na > j\nb > c\nc > d\nd > j\nj! > e\ne .", "s a b c d j e", id="however long the detour is"
        ),
        pytest.param(
            "s > a b c\na > j\nb > x\nx > j\nc > k\nj! > k\nk! > e\ne .",
            "s a b c x j k e",
            id="one join before another",
        ),
        pytest.param(
            "s > a b\na > j\nb > k\nj! > e\nk! > e\ne! .", "s a b j k e", id="two joins that do not lead to each other"
        ),
        pytest.param("s > a b\na > e\nb > c\nc > e\ne! .", "s a b c e", id="a join on the end waits for all"),
        pytest.param("s > a j\na > e\nj! > e\ne! .", "s a j e", id="a lane that never comes is not waited for"),
        pytest.param("s > j\nj! > e\ne .", "s j e", id="a join with a single lane does not wait"),
        pytest.param("s > a b\na > j\nb > j\nj! > e\ne .", "s a b j e", id="equal branches as ever"),
    ],
)
@pytest.mark.sample(3)
async def test_join_all(agent_runner: AgentRunner, graph: str, order: str) -> None:
    agent_runner.agent(lanes(graph), **NOTHING)
    outcome = await agent_runner.run()
    assert outcome.order == order.split()
    assert outcome.status == "done"
    assert agent_runner.warnings == []


async def test_a_join_merges_what_its_lanes_wrote_in_their_own_steps(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        start: s
        reducers: {seen: append}
        nodes:
          s: {type: script, script: n.sh, next: [a, b]}
          a: {type: script, script: n.sh, state_updates: {seen: a}, next: j}
          b: {type: script, script: n.sh, state_updates: {seen: b}, next: c}
          c: {type: script, script: n.sh, state_updates: {seen: c}, next: j}
          j: {type: end, join: all, output: "{{seen}}"}
        """,
        **NOTHING,
    )
    assert (await agent_runner.run(compat=compat)).output == '["a","b","c"]'


async def test_a_join_that_a_loop_comes_back_to_runs_once_per_round(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        """
        start: s
        nodes:
          s: {type: script, script: n.sh, next: [a, b]}
          a: {type: script, script: n.sh, state_updates: {}, next: j}
          b: {type: script, script: n.sh, state_updates: {}, next: c}
          c: {type: script, script: n.sh, next: j}
          j: {type: script, join: all, script: j.sh, routes: [s], next: e}
          e: {type: end, output: "{{rounds}}"}
        """,
        **NOTHING,
        j="""printf %s "$GRAPH_STATE" |
             jq -c '{rounds: (.rounds + 1)} + if .rounds < 1 then {_next: "s"} else {} end'""",
    )
    outcome = await agent_runner.run(state={"rounds": 0})
    assert outcome.nodes["j"].visits == 2
    assert outcome.order == ["s", "a", "b", "c", "j"] * 2 + ["e"]


async def test_a_lane_that_is_routed_away_does_not_hold_up_the_join(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        """
        start: s
        nodes:
          s: {type: script, script: n.sh, next: [a, b]}
          a: {type: script, script: n.sh, state_updates: {}, next: j}
          b: {type: script, script: away.sh, state_updates: {}, routes: [x], next: j}
          x: {type: script, script: n.sh, next: y}
          y: {type: script, script: n.sh, next: e}
          j: {type: script, join: all, script: n.sh, next: e}
          e: {type: end, join: all, output: done}
        """,
        **NOTHING,
        away="""echo '{"_next": "x"}'""",
    )
    outcome = await agent_runner.run()
    # After b took its other way nobody can reach j any more, so j runs beside x.
    assert outcome.order == ["s", "a", "b", "j", "x", "y", "e"]


async def test_three_joins_that_reach_each_other_in_a_circle_do_not_lock_up(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        """
        start: s
        nodes:
          s: {type: script, script: n.sh, next: [x, y, z]}
          x: {type: script, join: all, script: n.sh, state_updates: {}, routes: [y], next: e}
          y: {type: script, join: all, script: n.sh, state_updates: {}, routes: [z], next: e}
          z: {type: script, join: all, script: n.sh, state_updates: {}, routes: [x], next: e}
          e: {type: end, join: all, output: done}
        """,
        **NOTHING,
    )
    outcome = await agent_runner.run()
    assert outcome.output == "done"
    assert sorted(outcome.order) == ["e", "s", "x", "y", "z"]


async def test_a_lane_that_waits_is_told_about(agent_runner: AgentRunner) -> None:
    agent_runner.agent(lanes("s > a b\na > j\nb > c\nc > d\nd > j\nj! > e\ne ."), **NOTHING)
    await agent_runner.run()
    assert [(data.node, data.reason) for data in agent_runner.of("node.skipped")] == [
        ("j", "waits for the other lanes (`join: all`)")
    ]


async def test_an_end_without_join_drops_also_the_lanes_that_wait(agent_runner: AgentRunner) -> None:
    agent_runner.agent(lanes("s > a b c\na > j\nb > b2\nb2 > b3\nb3 > j\nc > e\nj! > e\ne ."), **NOTHING)
    await agent_runner.run()
    (warning,) = [data for data in agent_runner.of("run.warning") if data.code == "lanes_dropped"]
    assert has_message(warning.message, "engine.graph.decider.GraphDecider._finish", id="e", dropped="b3, j")


# --- typed updates -------------------------------------------------------------------------------------------


async def test_raw_updates_keep_the_type(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        start: a
        nodes:
          a:
            type: llm
            prompt: p
            output_schema: {type: object}
            state_updates:
              text: "{{output.list}}"
              list: {raw: "{{output.list}}"}
              second: {raw: "{{output.list[1].k}}"}
              whole: {raw: "{{output}}"}
              gone: {raw: "{{output.gone}}"}
            next: e
          e: {type: end}
        """
    )
    agent_runner.models.script('{"list": [1, {"k": true}]}')
    state = (await agent_runner.run(compat=compat)).state
    assert state["text"] == '[1,{"k":true}]'
    assert state["list"] == [1, {"k": True}]
    assert state["second"] is True
    assert state["whole"] == {"list": [1, {"k": True}]}
    assert state["gone"] is None


async def test_updates_are_stored_together_in_standard_and_one_after_the_other_in_loki(
    agent_runner: AgentRunner,
) -> None:
    agent_runner.agent(
        """
        start: a
        nodes:
          a: {type: llm, prompt: p, state_updates: {x: "{{y}}", y: "{{x}}"}, next: e}
          e: {type: end, output: "{{x}}{{y}}"}
        """
    )
    assert (await agent_runner.run(compat="standard", state={"x": "1", "y": "2"})).output == "21"
    assert (await agent_runner.run(compat="loki", state={"x": "1", "y": "2"})).output == "22"
