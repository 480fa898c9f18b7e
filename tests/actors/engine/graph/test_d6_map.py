"""map nodes: cases 61 to 69 of Loki's conformance list, and branches that are chains."""

from __future__ import annotations

import pytest
import trio
from support.agent_runs import AgentRunner
from support.fake_models import Reply
from support.messages import fragment, has_message

MAP = """
start: m
{extra}
nodes:
  m: {{type: map, over: "{over}", as: item, branch: b, collect_into: out, {options}next: e}}
  b: {{type: script, script: b.sh}}
  e: {{type: end, output: "{{{{out}}}}"}}
"""


def mapped(over: str = "{{items}}", options: str = "", extra: str = "") -> str:
    return MAP.format(over=over, options=options and options + ", ", extra=extra)


DOUBLE = """printf '{"output": %s}' "$(printf %s "$GRAPH_STATE" | jq '.item * 2')" """


async def test_case_61_results_come_in_the_order_of_the_items(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(mapped(), b=DOUBLE)
    outcome = await agent_runner.run(compat=compat, state={"items": [1, 2, 3, 4, 5]})
    assert outcome.output == "[2,4,6,8,10]"
    assert outcome.state["out"] == [2, 4, 6, 8, 10]
    assert outcome.order == ["m", "e"]
    assert sorted(data.item for data in agent_runner.of("node.entered") if data.node == "b") == [0, 1, 2, 3, 4]
    agent_runner.check_stream()


LLM_MAP = """
start: m
nodes:
  m: {type: map, over: "{{items}}", as: item, branch: b, collect_into: out, output_key: o, next: e}
  b: {type: llm, prompt: "{{item}}", state_updates: {o: "<{{output}}>"}}
  e: {type: end, output: "{{out}}"}
"""


async def test_case_61_the_first_item_may_end_last(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(LLM_MAP)
    others_are_done = trio.Event()
    ended = 0

    def watch(event: object) -> None:
        nonlocal ended
        ended += getattr(event, "kind", "") == "llm.response"
        if ended == 2:
            others_are_done.set()

    agent_runner.models.answer_with(
        lambda request: Reply("A", hold=others_are_done) if request.prompt == "a" else request.prompt.upper()
    )
    outcome = await agent_runner.run(compat=compat, state={"items": ["a", "b", "c"]}, on_event=watch)
    assert outcome.output == '["<A>","<B>","<C>"]'


async def test_case_62_no_items_no_branch_an_empty_list(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(mapped(), b="exit 1")
    outcome = await agent_runner.run(compat=compat, state={"items": []})
    assert outcome.state["out"] == []
    assert "b" not in [data.node for data in agent_runner.of("node.entered")]


@pytest.mark.parametrize(
    ("over", "text"),
    [
        ("{{text}}", "`over` template '{{text}}' must resolve to an array, got string"),
        ("x {{items}}", "`over` template 'x {{items}}' must resolve to an array, got string"),
        ("{{gone}}", "evaluating `over` template: Template interpolation failed: 'gone' not found in state"),
        ("{{n}}", "`over` template '{{n}}' must resolve to an array, got number"),
    ],
)
async def test_case_63_over_must_be_a_list(agent_runner: AgentRunner, compat: str, over: str, text: str) -> None:
    agent_runner.agent(mapped(over), b=DOUBLE)
    outcome = await agent_runner.run(compat=compat, state={"items": [1], "text": "abc", "n": 3})
    assert outcome.error is not None
    assert f"map node 'm': {text}" in outcome.error.message
    assert (outcome.error.code, outcome.error.node, outcome.exit_code) == ("graph", "m", 1)


async def test_case_64_a_failing_item_fails_the_map_after_the_others_are_done(
    agent_runner: AgentRunner, compat: str
) -> None:
    agent_runner.agent(
        mapped(), b="""[ "$(printf %s "$GRAPH_STATE" | jq .item)" != 2 ] || exit 7; echo '{"output": 1}'"""
    )
    outcome = await agent_runner.run(compat=compat, state={"items": [0, 1, 2, 3]})
    assert outcome.error is not None
    assert "map node 'm': sub-branch [2] failed at node 'b' (step 1): Script 'b.sh' failed with exit code 7" in (
        outcome.error.message
    )
    assert sorted(data.item for data in agent_runner.of("node.exited") if data.node == "b" and not data.error) == [
        0,
        1,
        3,
    ]
    assert outcome.state.get("out") == (None if compat == "loki" else [1, 1, None, 1])


async def test_case_64_every_failing_item_is_named(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(mapped(), b="exit 7")
    outcome = await agent_runner.run(compat=compat, state={"items": [0, 1]})
    assert outcome.error is not None
    assert "sub-branch [0] failed" in outcome.error.message
    assert "sub-branch [1] failed" in outcome.error.message


async def test_case_65_a_script_has_to_write_the_output_key(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(mapped(), b="echo '{}'")
    outcome = await agent_runner.run(compat=compat, state={"items": [1]})
    assert outcome.error is not None
    assert "map node 'm': sub-branch [0] did not write `output_key` 'output'" in outcome.error.message


async def test_case_66_nothing_but_the_results_reaches_the_state(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(mapped(), b="""printf '{"output": "x", "other": 1, "item": 5}' """)
    outcome = await agent_runner.run(compat=compat, state={"items": [1, 2]})
    assert outcome.state == {"initial_prompt": "", "items": [1, 2], "out": ["x", "x"]}


async def test_case_66_items_are_objects_that_templates_can_walk(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(LLM_MAP.replace('"{{item}}"', '"{{item.name}} of {{item.tags[0]}}"'))
    agent_runner.models.answer_with(lambda request: request.prompt)
    outcome = await agent_runner.run(compat=compat, state={"items": [{"name": "n", "tags": ["t"]}]})
    assert outcome.output == '["<n of t>"]'


DEFAULT_KEY = LLM_MAP.replace(", output_key: o", "").replace(', state_updates: {o: "<{{output}}>"}', "")


async def test_case_67_standard_collects_what_an_llm_branch_said(agent_runner: AgentRunner) -> None:
    agent_runner.agent(DEFAULT_KEY)
    agent_runner.models.answer_with(lambda request: request.prompt.upper())
    # What the state held under that name before is nobody's result.
    outcome = await agent_runner.run(compat="standard", state={"items": ["a", "b"], "output": "old"})
    assert outcome.output == '["A","B"]'


async def test_case_67_standard_collects_a_structured_answer_with_its_type(agent_runner: AgentRunner) -> None:
    agent_runner.agent(DEFAULT_KEY.replace('"{{item}}"', '"{{item}}", output_schema: {type: object}'))
    agent_runner.models.answer_with(lambda request: '{"n": 1}')
    assert (await agent_runner.run(state={"items": ["a"]})).state["out"] == [{"n": 1}]


async def test_case_67_loki_wants_the_output_key_written(agent_runner: AgentRunner) -> None:
    agent_runner.agent(DEFAULT_KEY)
    outcome = await agent_runner.run(compat="loki", state={"items": ["a"]})
    assert outcome.error is not None
    assert "sub-branch [0] did not write `output_key` 'output'" in outcome.error.message


async def test_case_67_loki_takes_the_null_that_an_earlier_node_left(agent_runner: AgentRunner) -> None:
    agent_runner.agent(DEFAULT_KEY)
    assert (await agent_runner.run(compat="loki", state={"items": ["a"], "output": None})).output == "[null]"


async def test_case_67_an_output_key_of_ones_own_works_in_both(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(LLM_MAP)
    agent_runner.models.answer_with(lambda request: request.prompt.upper())
    assert (await agent_runner.run(compat=compat, state={"items": ["a", "b"]})).output == '["<A>","<B>"]'


@pytest.mark.parametrize("limit", ["2", 2])
async def test_case_68_the_limit_may_be_a_template(agent_runner: AgentRunner, limit: str | int) -> None:
    agent_runner.agent(LLM_MAP.replace("next: e}", 'max_concurrency: "{{n}}", next: e}', 1))
    await agent_runner.run(state={"items": ["a", "b", "c"], "n": limit})
    first = [event.kind for event in agent_runner.events if event.kind.startswith("node.") and event.data.node == "b"]
    assert first[:3] == ["node.entered", "node.entered", "node.exited"]


@pytest.mark.parametrize("limit", ["0", 0, -1, "many", 1.5, None])
async def test_case_68_a_limit_that_is_no_positive_number_is_a_mistake(
    agent_runner: AgentRunner, limit: object
) -> None:
    agent_runner.agent(LLM_MAP.replace("next: e}", 'max_concurrency: "{{n}}", next: e}', 1))
    outcome = await agent_runner.run(state={"items": ["a"], "n": limit})
    assert outcome.error is not None
    assert has_message(outcome.error.message, "engine.graph.nodes.map._limit", id="m")
    assert outcome.error.code == "graph"


async def test_case_68_a_map_of_one_at_a_time_never_overlaps(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(LLM_MAP.replace("next: e}", "max_concurrency: 1, next: e}", 1))
    await agent_runner.run(compat=compat, state={"items": ["a", "b", "c"]})
    kinds = [event.kind for event in agent_runner.events if event.kind.startswith("node.") and event.data.node == "b"]
    assert kinds == ["node.entered", "node.exited"] * 3


async def test_case_68_maps_over_none_or_one_item_are_conditional_lanes(agent_runner: AgentRunner, compat: str) -> None:
    lanes = "".join(
        f"""
          m{i}: {{type: map, over: "{{{{l{i}}}}}", as: x, branch: b{i}, collect_into: r{i}, output_key: o, next: e}}
          b{i}: {{type: script, script: b.sh}}"""
        for i in range(4)
    )
    agent_runner.agent(
        f"""
        start: d
        nodes:
          d: {{type: script, script: d.sh, next: [m0, m1, m2, m3]}}{lanes}
          e: {{type: end, output: "{{{{r0}}}}{{{{r1}}}}{{{{r2}}}}{{{{r3}}}}"}}
        """,
        d="""echo '{"l0": [], "l1": [], "l2": ["x"], "l3": []}'""",
        b="""echo '{"o": "ran"}'""",
    )
    assert (await agent_runner.run(compat=compat)).output == '[][]["ran"][]'
    assert [data.node for data in agent_runner.of("node.entered") if data.item is not None] == ["b2"]


async def test_case_69_a_branch_may_mend_its_failures_inside(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        """
        start: m
        nodes:
          m: {type: map, over: "{{items}}", as: item, branch: b, collect_into: out, output_key: o, next: e}
          b: {type: llm, prompt: "{{item}}", state_updates: {o: "{{output}}"}, fallback: fault}
          fault: {type: script, script: fault.sh}
          e: {type: end, output: "{{out}}"}
        """,
        fault="""printf %s "$GRAPH_STATE" | jq -c '{o: ("PIPELINE-FAULT: " + .o)}'""",
    )
    agent_runner.models.answer_with(
        lambda request: Reply(status=400, error="no") if request.prompt == "bad" else request.prompt
    )
    outcome = await agent_runner.run(state={"items": ["good", "bad"]})
    good, bad = outcome.state["out"]
    assert good == "good"
    assert bad.startswith("PIPELINE-FAULT: LLM node failed: ")


async def test_loki_collects_the_failure_text_of_an_llm_branch(agent_runner: AgentRunner) -> None:
    agent_runner.agent(LLM_MAP)
    agent_runner.models.answer_with(lambda request: Reply(status=400, error="no"))
    outcome = await agent_runner.run(compat="loki", state={"items": ["a"]})
    assert outcome.state["out"][0].startswith("<LLM node failed: ")


async def test_loki_fails_an_llm_branch_that_says_so(agent_runner: AgentRunner) -> None:
    agent_runner.agent(LLM_MAP.replace('prompt: "{{item}}"', 'prompt: "{{item}}", on_error: fail'))
    agent_runner.models.answer_with(lambda request: Reply(status=400, error="no"))
    outcome = await agent_runner.run(compat="loki", state={"items": ["a"]})
    assert outcome.error is not None
    assert "sub-branch [0] failed at node 'b'" in outcome.error.message


async def test_a_branch_that_continues_has_its_error_text_collected(agent_runner: AgentRunner) -> None:
    agent_runner.agent(DEFAULT_KEY.replace('prompt: "{{item}}"', 'prompt: "{{item}}", on_error: continue'))
    agent_runner.models.answer_with(
        lambda request: Reply(status=400, error="no") if request.prompt == "bad" else request.prompt
    )
    outcome = await agent_runner.run(state={"items": ["good", "bad"]})
    good, bad = outcome.state["out"]
    assert good == "good"
    assert bad.startswith("LLM node failed: ")


async def test_an_update_of_output_itself_is_kept_in_standard_and_lost_in_loki(agent_runner: AgentRunner) -> None:
    graph = DEFAULT_KEY.replace('prompt: "{{item}}"', 'prompt: "{{item}}", state_updates: {output: "<{{output}}>"}')
    agent_runner.agent(graph)
    assert (await agent_runner.run(compat="standard", state={"items": ["a"]})).output == '["<ok>"]'
    assert (await agent_runner.run(compat="loki", state={"items": ["a"]})).output == "[null]"


# --- chains --------------------------------------------------------------------------------------------------

CHAIN = """
start: m
{settings}
nodes:
  m: {{type: map, over: "{{{{items}}}}", as: item, branch: first, collect_into: out, next: e}}
  first: {{type: script, script: first.sh, next: second}}
  second: {{type: script, script: second.sh{routes}}}
  e: {{type: end, output: "{{{{out}}}}"}}
"""
ADD = """printf %s "$GRAPH_STATE" | jq -c '{k: (.item + 1)}'"""


async def test_a_branch_may_be_a_chain_whose_nodes_see_each_others_writes(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        CHAIN.format(settings="", routes=""),
        first=ADD,
        second="""printf %s "$GRAPH_STATE" | jq -c '{output: (.k * 10)}'""",
    )
    outcome = await agent_runner.run(state={"items": [1, 2]})
    assert outcome.output == "[20,30]"
    assert "k" not in outcome.state


async def test_a_chain_may_loop_by_next_until_its_items_own_visit_cap(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        CHAIN.format(settings="settings: {max_loop_iterations: 3}", routes=", routes: [second]"),
        first=ADD,
        second="""printf %s "$GRAPH_STATE" | jq -c 'if .k < .item + 3 then {k: (.k + 1), _next: "second"}
                  else {output: .k} end'""",
    )
    assert (await agent_runner.run(state={"items": [1, 5]})).output == "[4,8]"
    agent_runner.agent(
        CHAIN.format(settings="settings: {max_loop_iterations: 2}", routes=", routes: [second]"),
        first=ADD,
        second="""echo '{"_next": "second"}'""",
    )
    outcome = await agent_runner.run(state={"items": [1]})
    assert outcome.error is not None
    assert "sub-branch [0] Node 'second' visited 3 times (max_loop_iterations=2)" in outcome.error.message
    assert outcome.error.code == "graph"


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("ghost", fragment("engine.graph.map_decider.MapDecider.begin", branch="ghost", name="g")),
        (
            "e",
            "'second' routed to 'e' which is outside the branch subgraph rooted at 'first' (branch nodes: first, sec",
        ),
    ],
)
async def test_a_chain_must_stay_inside(agent_runner: AgentRunner, target: str, text: str) -> None:
    agent_runner.agent(
        CHAIN.format(settings="", routes=""), first=ADD, second=f"""echo '{{"output": 1, "_next": "{target}"}}'"""
    )
    outcome = await agent_runner.run(state={"items": [1]})
    assert outcome.error is not None
    assert text in outcome.error.message
    assert outcome.error.code == "graph"


async def test_the_step_at_which_a_chain_failed_is_told(agent_runner: AgentRunner) -> None:
    agent_runner.agent(CHAIN.format(settings="", routes=""), first=ADD, second="exit 4")
    outcome = await agent_runner.run(state={"items": [1]})
    assert outcome.error is not None
    assert "sub-branch [0] failed at node 'second' (step 2): Script 'second.sh' failed with exit code 4" in (
        outcome.error.message
    )


async def test_in_loki_a_branch_is_one_node_whose_next_is_ignored(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        """
        settings: {validate_before_run: false}
        start: m
        nodes:
          m: {type: map, over: "{{items}}", as: item, branch: b, collect_into: out, next: e}
          b: {type: script, script: b.sh}
          e: {type: end, output: "{{out}}"}
        """,
        b="""echo '{"output": 1, "_next": "ghost"}'""",
    )
    assert (await agent_runner.run(compat="loki", state={"items": [1]})).output == "[1]"


async def test_the_items_of_a_map_share_one_place_in_the_step(agent_runner: AgentRunner) -> None:
    agent_runner.agent(mapped(), b="""echo '{"output": 1}'""")
    outcome = await agent_runner.run(state={"items": [1, 2, 3]})
    assert outcome.nodes["m"].visits == 1
    assert outcome.order == ["m", "e"]


async def test_what_a_childs_map_has_kept_is_not_its_parents(agent_runner: AgentRunner) -> None:
    agent_runner.models.answer_with(
        lambda request: Reply(status=400, error="no") if "about c" in request.prompt else "fine"
    )
    agent_runner.agent(
        """
        start: fan
        initial_state: { items: [a, c] }
        nodes:
          fan: { type: map, over: "{{items}}", as: item, branch: each, collect_into: all, next: end }
          each: { type: llm, prompt: "Say something about {{item}}" }
          end: { type: end, output: "{{all}}" }
        """,
        name="inner",
    )
    agent_runner.agent(
        """
        start: call
        nodes:
          call: { type: agent, agent: inner, prompt: go, next: end }
          end: { type: end, output: done }
        """
    )
    outcome = await agent_runner.run()
    assert outcome.status == "failed"
    assert "all" not in outcome.state
