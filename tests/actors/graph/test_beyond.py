"""What Callboard adds to Loki's graphs: error policies, joins, typed updates, agents with a fallback, depth."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from fake_models import Reply
from stage import Stage

import callboard

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
    stage: Stage, compat: str
) -> None:
    stage.agent(LANES.format(policy="continue"), **LANE_SCRIPTS)
    stage.models.script(BAD)
    outcome = await stage.run(compat=compat, state={"output": None})
    kept, a_said, b_said = outcome.output.split("|")
    assert kept == "kept"
    assert a_said == "Script 'a.sh' failed with exit code 1:\nboom"
    assert b_said.startswith("LLM node failed: ")
    assert stage.warnings == ["node_failed", "node_failed"]
    assert "errors" not in outcome.state


async def test_on_error_collect_keeps_the_siblings_and_lists_every_error(stage: Stage, compat: str) -> None:
    stage.agent(LANES.format(policy="collect"), **LANE_SCRIPTS)
    stage.models.script(BAD)
    outcome = await stage.run(compat=compat, state={"output": None})
    assert outcome.state["c"] == "kept"
    assert [(error["node"], error["code"]) for error in outcome.state["errors"]] == [
        ("a", "node_failed"),
        ("b", "model"),
    ]
    assert "boom" in outcome.state["errors"][0]["error"]


async def test_on_error_fail_is_the_end_even_where_standard_would_go_on(stage: Stage, compat: str) -> None:
    stage.agent(LANES.format(policy="fail"), **LANE_SCRIPTS)
    stage.models.script(BAD)
    outcome = await stage.run(compat=compat, state={"output": None})
    assert outcome.error is not None
    assert "at node 'a'" in outcome.error.message
    assert "at node 'b'" in outcome.error.message
    assert "c" not in outcome.state


async def test_collected_errors_add_up_over_the_steps(stage: Stage, compat: str) -> None:
    stage.agent(
        """
        start: a
        nodes:
          a: {type: script, script: bad.sh, on_error: collect, next: b}
          b: {type: script, script: bad.sh, on_error: collect, next: e}
          e: {type: end, output: "{{errors[0].node}}{{errors[1].node}}"}
        """,
        bad="exit 1",
    )
    assert (await stage.run(compat=compat)).output == "ab"


async def test_a_fallback_goes_before_on_error(stage: Stage, compat: str) -> None:
    stage.agent(
        """
        start: a
        nodes:
          a: {type: script, script: bad.sh, on_error: collect, fallback: f, next: e}
          e: {type: end, output: wrong}
          f: {type: end, output: fallback}
        """,
        bad="exit 1",
    )
    outcome = await stage.run(compat=compat)
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


async def test_a_map_that_continues_leaves_out_what_failed(stage: Stage, compat: str) -> None:
    stage.agent(ITEMS.format(policy="continue"), b=ODD_FAILS)
    outcome = await stage.run(compat=compat, state={"items": [0, 1, 2, 3]})
    assert outcome.state["out"] == [0, 2]
    assert stage.warnings == ["item_failed", "item_failed"]


async def test_a_map_that_collects_puts_the_error_in_the_items_place(stage: Stage, compat: str) -> None:
    stage.agent(ITEMS.format(policy="collect"), b=ODD_FAILS)
    outcome = await stage.run(compat=compat, state={"items": [0, 1, 2]})
    zero, one, two = outcome.state["out"]
    assert (zero, two) == (0, 2)
    assert (one["index"], one["code"]) == (1, "node_failed")
    assert "odd 1" in one["error"]


async def test_a_question_nobody_answers_is_no_failure_to_continue_from(stage: Stage, compat: str) -> None:
    stage.agent(
        """
        start: i
        nodes:
          i: {type: input, question: q, on_error: continue, next: e}
          e: {type: end}
        """
    )
    assert (await stage.run(compat=compat)).exit_code == 5


async def test_an_input_refused_may_go_on_with_the_problem_as_output(stage: Stage) -> None:
    stage.agent(
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
    assert (await stage.run(answers=["ab"])).output == "Input failed validation 'len(input) > 3' (got 2 chars)"


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
async def test_join_all(stage: Stage, graph: str, order: str) -> None:
    stage.agent(lanes(graph), **NOTHING)
    outcome = await stage.run()
    assert outcome.order == order.split()
    assert outcome.status == "done"
    assert stage.warnings == []


async def test_a_join_merges_what_its_lanes_wrote_in_their_own_steps(stage: Stage, compat: str) -> None:
    stage.agent(
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
    assert (await stage.run(compat=compat)).output == '["a","b","c"]'


async def test_a_join_that_a_loop_comes_back_to_runs_once_per_round(stage: Stage) -> None:
    stage.agent(
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
    outcome = await stage.run(state={"rounds": 0})
    assert outcome.nodes["j"].visits == 2
    assert outcome.order == ["s", "a", "b", "c", "j"] * 2 + ["e"]


async def test_a_lane_that_is_routed_away_does_not_hold_up_the_join(stage: Stage) -> None:
    stage.agent(
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
    outcome = await stage.run()
    # After b took its other way nobody can reach j any more, so j runs beside x.
    assert outcome.order == ["s", "a", "b", "j", "x", "y", "e"]


async def test_three_joins_that_reach_each_other_in_a_circle_do_not_lock_up(stage: Stage) -> None:
    stage.agent(
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
    outcome = await stage.run()
    assert outcome.output == "done"
    assert sorted(outcome.order) == ["e", "s", "x", "y", "z"]


async def test_a_lane_that_waits_is_told_about(stage: Stage) -> None:
    stage.agent(lanes("s > a b\na > j\nb > c\nc > d\nd > j\nj! > e\ne ."), **NOTHING)
    await stage.run()
    assert [(data.node, data.reason) for data in stage.of("node.skipped")] == [
        ("j", "waits for the other lanes (join: all)")
    ]


async def test_an_end_without_join_drops_also_the_lanes_that_wait(stage: Stage) -> None:
    stage.agent(lanes("s > a b c\na > j\nb > b2\nb2 > b3\nb3 > j\nc > e\nj! > e\ne ."), **NOTHING)
    await stage.run()
    (warning,) = [data for data in stage.of("run.warning") if data.code == "lanes_dropped"]
    assert warning.message == "'e' ended the graph while other lanes were on their way to: b3, j"


# --- typed updates -------------------------------------------------------------------------------------------


async def test_raw_updates_keep_the_type(stage: Stage, compat: str) -> None:
    stage.agent(
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
    stage.models.script('{"list": [1, {"k": true}]}')
    state = (await stage.run(compat=compat)).state
    assert state["text"] == '[1,{"k":true}]'
    assert state["list"] == [1, {"k": True}]
    assert state["second"] is True
    assert state["whole"] == {"list": [1, {"k": True}]}
    assert state["gone"] is None


async def test_updates_are_stored_together_in_standard_and_one_after_the_other_in_loki(stage: Stage) -> None:
    stage.agent(
        """
        start: a
        nodes:
          a: {type: llm, prompt: p, state_updates: {x: "{{y}}", y: "{{x}}"}, next: e}
          e: {type: end, output: "{{x}}{{y}}"}
        """
    )
    assert (await stage.run(compat="standard", state={"x": "1", "y": "2"})).output == "21"
    assert (await stage.run(compat="loki", state={"x": "1", "y": "2"})).output == "22"


# --- agent nodes ---------------------------------------------------------------------------------------------

CALLER = """
start: a
nodes:
  a: {{type: agent, agent: kid, prompt: "do {{{{initial_prompt}}}}", {options}state_updates: {{r: "{{{{output}}}}"}},
      next: e}}
  e: {{type: end, output: "got {{{{r}}}}{{{{k}}}}"}}
  f: {{type: end, output: "fell back: {{{{r}}}}"}}
"""


def caller(options: str = "") -> str:
    return CALLER.format(options=options and options + ", ")


async def test_an_agent_node_runs_a_plain_agent(stage: Stage, compat: str) -> None:
    stage.plain("instructions: You are {{who}}.\nvariables: [{name: who, default: kid}]", name="kid")
    stage.agent(caller())
    stage.models.script("fine")
    outcome = await stage.run("it", compat=compat)
    assert outcome.output == "got fine"
    assert [message["content"] for message in stage.models.requests[0].json["messages"]] == [
        "You are kid.",
        "do it",
    ]


async def test_an_agent_node_runs_a_graph_as_a_child_with_its_own_state(stage: Stage, compat: str) -> None:
    stage.agent(
        """
        start: s
        initial_state: {own: 1}
        nodes:
          s: {type: script, script: s.sh, next: e}
          e: {type: end, output: "{{initial_prompt}} {{own}} {{callers}}{{seen}}"}
        """,
        name="kid",
        s="""printf %s "$GRAPH_STATE" | jq -c '{seen: keys}'""",
    )
    stage.agent(caller())
    outcome = await stage.run("it", compat=compat, state={"callers": "no"})
    assert outcome.output == 'got do it 1 ["initial_prompt","own"]'
    assert outcome.order == ["a", "e"]
    assert "own" not in outcome.state
    assert [data.depth for data in stage.of("graph.started")] == [0, 1]
    run = outcome.run_id
    assert f"/{run}/g/a/kid/s" in {event.actor for event in stage.events}
    stage.check_stream()


async def test_inputs_are_the_childs_variables(stage: Stage, compat: str) -> None:
    stage.agent(
        """
        variables: [{name: check}]
        start: s
        nodes:
          s: {type: script, script: s.sh, next: e}
          e: {type: end, output: "{{v}}"}
        """,
        name="kid",
        s="""printf '{"v": "%s"}' "$LLM_AGENT_VAR_CHECK" """,
    )
    stage.agent(caller('inputs: {check: "run {{initial_prompt}}"}'))
    assert (await stage.run("it", compat=compat)).output == "got run it"
    for wrong, text in [("inputs: {chek: x}", "has no variable 'chek'"), ("", "variables are required:\n  - check")]:
        stage.agent(caller(wrong + (", " if wrong else "") + "fallback: f"))
        outcome = await stage.run("it", compat=compat)
        assert outcome.error is not None, wrong
        assert text in outcome.error.message
        assert outcome.error.code == "usage"


FAILING_KID = "start: n\nnodes:\n  n: {type: llm, prompt: p, on_error: fail, next: e}\n  e: {type: end, output: ok}"


async def test_an_agents_failure_takes_its_fallback_with_the_error_as_output(stage: Stage, compat: str) -> None:
    stage.agent(FAILING_KID, name="kid")
    stage.agent(caller("fallback: f"))
    stage.models.script(BAD)
    outcome = await stage.run(compat=compat)
    assert outcome.output.startswith(
        "fell back: Agent node failed: Agent 'kid' failed: at node 'n': LLM node failed and no fallback declared: "
    )


async def test_an_agents_failure_without_fallback_fails_the_run(stage: Stage, compat: str) -> None:
    stage.agent(FAILING_KID, name="kid")
    stage.agent(caller())
    stage.models.script(BAD)
    outcome = await stage.run(compat=compat)
    assert outcome.error is not None
    assert outcome.error.message.startswith("at node 'a': Agent 'kid' failed: at node 'n': ")
    assert (outcome.exit_code, outcome.error.code) == (1, "model")


@pytest.mark.parametrize("kind", ["plain", "graph"])
async def test_an_agent_that_failed_upstream_is_tried_as_often_as_max_attempts(stage: Stage, kind: str) -> None:
    if kind == "graph":
        stage.agent(FAILING_KID, name="kid")
    else:
        stage.agent(FAILING_KID.replace("llm, prompt: p", "agent, agent: plain, prompt: p"), name="kid")
        stage.plain("model: fake:model", name="plain")
    stage.agent(caller("max_attempts: 2"))
    busy = Reply(status=503, error="busy", headers={"retry-after": "1000"})  # longer than anybody waits
    stage.models.script(busy, "ok")
    outcome = await stage.run()
    assert outcome.output == "got ok"
    stage.models.script(busy, busy, "one too many")
    outcome = await stage.run()
    assert outcome.exit_code == 6
    assert stage.models.unused == 1


async def test_what_will_not_pass_is_not_tried_again(stage: Stage) -> None:
    stage.agent(FAILING_KID, name="kid")
    stage.agent(caller("max_attempts: 3"))
    stage.models.script(BAD, "unused")
    assert (await stage.run()).status == "failed"
    assert stage.models.unused == 1


async def test_an_agents_answer_can_be_put_into_a_shape(stage: Stage, compat: str) -> None:
    stage.plain("instructions: talk", name="kid")
    stage.agent(caller("output_schema: {type: object, required: [k], properties: {k: {type: integer}}}"))
    stage.models.script("k is seven", '{"k": 7}')
    outcome = await stage.run("it", compat=compat)
    assert outcome.output == 'got {"k":7}7'
    # The agent itself is told nothing of the shape.
    assert stage.models.requests[0].prompt == "do it"
    assert "required" not in stage.models.requests[0].body.decode()


async def test_a_shape_that_fails_is_the_agents_failure(stage: Stage, compat: str) -> None:
    stage.plain("instructions: talk", name="kid")
    stage.agent(caller("output_schema: {type: object}, fallback: f"))
    stage.models.script("prose", "prose", "prose")
    outcome = await stage.run(compat=compat)
    assert outcome.output.startswith(
        "fell back: Agent node structured-extraction failed: "
        "Agent 'kid' output failed structured-output extraction: Structured-output extractor failed"
    )


async def test_depth_is_limited(stage: Stage, compat: str) -> None:
    stage.agent("start: a\nnodes:\n  a: {type: agent, agent: g, prompt: p, next: e}\n  e: {type: end}")
    outcome = await stage.run(compat=compat)
    assert outcome.error is not None
    assert outcome.error.message.endswith("Max agent depth exceeded (4/3)")
    assert [data.depth for data in stage.of("graph.started")] == [0, 1, 2, 3]


async def test_the_depth_limit_can_be_set(stage: Stage, compat: str) -> None:
    stage.agent(
        """
        max_agent_depth: 0
        start: a
        nodes:
          a: {type: agent, agent: g, prompt: p, fallback: f, next: e}
          e: {type: end}
          f: {type: end, output: "too deep"}
        """
    )
    assert (await stage.run(compat=compat)).output == "too deep"


async def test_a_child_asks_the_same_people(stage: Stage, compat: str) -> None:
    stage.agent(
        'start: i\nnodes:\n  i: {type: input, question: "kid?", state_updates: {x: "{{input}}"}, next: e}\n'
        '  e: {type: end, output: "{{x}}"}',
        name="kid",
    )
    stage.agent(caller())
    assert (await stage.run(compat=compat, answers={"i": "from below"})).output == "got from below"


async def test_a_child_is_found_beside_its_caller(stage: Stage, tmp_path: Any) -> None:
    for name, text in {
        "boss": "name: boss\n" + caller().strip(),
        "kid": "name: kid\nstart: e\nnodes:\n  e: {type: end, output: neighbour}",
    }.items():
        (tmp_path / "elsewhere" / name).mkdir(parents=True)
        (tmp_path / "elsewhere" / name / "graph.yaml").write_text(text)
    assert (await stage.run(target=tmp_path / "elsewhere" / "boss")).output == "got neighbour"


async def test_a_childs_own_invalid_file_is_not_tolerated(stage: Stage, compat: str) -> None:
    stage.agent("start: ghost\nnodes:\n  e: {type: end}", name="kid")
    stage.agent(caller("fallback: f"))
    outcome = await stage.run(compat=compat)
    assert outcome.error is not None
    assert outcome.error.code == "invalid_file"
    assert "Start node 'ghost' not found in graph 'kid'" in outcome.error.message


async def test_each_file_keeps_its_own_dialect_unless_one_is_forced(stage: Stage) -> None:
    stage.agent(
        "settings: {compat: loki}\nstart: n\nnodes:\n"
        "  n: {type: script, script: bad.sh, next: e}\n  e: {type: end, output: went on}",
        name="kid",
        bad="exit 1",
    )
    stage.agent(caller())
    assert (await stage.run()).status == "failed"
    assert (await stage.run(compat="standard")).output == "got went on"


async def test_usage_and_limits_cover_the_children(stage: Stage) -> None:
    stage.plain("instructions: talk", name="kid")
    stage.agent(caller())
    outcome = await stage.run()
    assert outcome.usage["fake:model"].input_tokens == 10
    outcome = await stage.run(limits=callboard.Limits(max_turns=0))
    assert outcome.error is not None
    assert (outcome.error.code, outcome.exit_code) == ("max_turns", 4)


async def test_a_child_that_timed_out_in_a_chain_does_not_work_on(
    stage: Stage, mock_clock: trio.testing.MockClock
) -> None:
    stage.agent(
        "start: n\nnodes:\n  n: {type: llm, prompt: slow, on_error: fail, next: e}\n  e: {type: end}", name="kid"
    )
    stage.agent(
        """
        start: m
        nodes:
          m: {type: map, over: "{{items}}", as: item, branch: b, collect_into: out, output_key: o, next: e}
          b: {type: agent, agent: kid, prompt: p, timeout: 1, fallback: mend}
          mend: {type: llm, prompt: mend, state_updates: {o: "{{output}}"}}
          e: {type: end, output: "{{out}}"}
        """
    )
    the_end = trio.Event()
    stage.models.answer_with(
        lambda request: Reply("late", hold=trio.Event()) if request.prompt == "slow" else Reply("mended", hold=the_end)
    )
    async with trio.open_nursery() as nursery:

        async def watch_the_child_go() -> None:
            await stage.models.arrived(1)
            mock_clock.jump(1)
            await stage.models.arrived(2)
            await stage.models.until(lambda server: server.cut == 1)
            the_end.set()

        nursery.start_soon(watch_the_child_go)
        assert (await stage.run(state={"items": [1]})).output == '["mended"]'


# --- settings from outside -----------------------------------------------------------------------------------


async def test_the_environment_overrides_model_and_sampling(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.plain("model: fake:file\ntemperature: 0.5", name="my-kid")
    stage.agent(
        "model: fake:file\nstart: a\nnodes:\n"
        "  a: {type: llm, prompt: p, next: b}\n"
        "  b: {type: agent, agent: my-kid, prompt: p, next: c}\n"
        "  c: {type: llm, prompt: p, model: fake:own, temperature: 1, next: e}\n  e: {type: end}"
    )
    for name, value in {
        "G_MODEL": "fake:env",
        "G_TEMPERATURE": "0.25",
        "G_TOP_P": "0.75",
        "MY_KID_MODEL": "fake:kid",
        "MY_KID_TEMPERATURE": "0",
    }.items():
        monkeypatch.setenv(name, value)
    await stage.run()
    asked = [
        (request.json["model"], request.json.get("temperature"), request.json.get("top_p"))
        for request in stage.models.requests
    ]
    assert asked == [("env", 0.25, 0.75), ("kid", 0, None), ("own", 1, 0.75)]
    assert stage.events[0].data.model == "fake:env"
    await stage.run(model="fake:flag")
    assert stage.models.requests[3].json["model"] == "flag"


async def test_an_override_that_is_no_number_is_named(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.agent("start: e\nnodes:\n  e: {type: end}")
    monkeypatch.setenv("G_TOP_P", "high")
    with pytest.raises(callboard.CallboardError, match="G_TOP_P in the environment must be a number, not 'high'"):
        await stage.run()


async def test_variables_come_from_the_caller_the_environment_or_the_file(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.agent(
        """
        variables: [{name: a, default: file}, {name: b, default: file}, {name: c, default: file}]
        start: s
        nodes:
          s: {type: script, script: s.sh, next: e}
          e: {type: end, output: "{{v}}"}
        """,
        s="""printf '{"v": "%s %s %s"}' "$LLM_AGENT_VAR_A" "$LLM_AGENT_VAR_B" "$LLM_AGENT_VAR_C" """,
    )
    monkeypatch.setenv("G_VARIABLES", '{"a": "env", "b": "env"}')
    assert (await stage.run(variables={"a": "caller"})).output == "caller env file"
    monkeypatch.setenv("G_VARIABLES", '["a"]')
    with pytest.raises(callboard.CallboardError, match="G_VARIABLES in the environment must be a JSON object"):
        await stage.run()
