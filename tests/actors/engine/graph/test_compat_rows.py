"""The rows in which Loki's documents and its program disagree, one test each.

The table is in docs/compatibility.md; the flags are `actors.graph.compat.Compat`.
"""

from __future__ import annotations

import pytest
from support.agent_runs import AgentRunner
from support.fake_models import Reply
from support.messages import has_message

BAD = Reply(status=400, error="bad request")
FAILING = {
    "script": ("type: script, script: s.sh", "Script 's.sh' failed with exit code 1:\nboom"),
    "llm": ("type: llm, prompt: p", "LLM node failed: "),
}


def failing(kind: str, rest: str = "next: e") -> str:
    return f"""
        start: n
        settings: {{validate_before_run: false}}
        nodes:
          n: {{{FAILING[kind][0]}, state_updates: {{said: "{{{{output}}}}"}}, {rest}}}
          e: {{type: end, output: "{{{{said}}}}"}}
        """


# --- row: an llm or script fails and has no fallback ---------------------------------------------------------


@pytest.mark.parametrize("kind", ["script", "llm"])
async def test_row_failure_standard_goes_to_next_with_the_error_text_and_a_warning(
    agent_runner: AgentRunner, kind: str
) -> None:
    agent_runner.agent(failing(kind), s="echo boom >&2; exit 1")
    agent_runner.models.script(BAD)
    outcome = await agent_runner.run(compat="standard")
    assert outcome.status == "failed"  # no author has accepted it: docs/graphs.md, When something fails
    assert outcome.output.startswith(FAILING[kind][1])
    (warning,) = [data for data in agent_runner.of("run.warning") if data.code == "node_failed"]
    assert warning.node == "n"
    exited = next(data for data in agent_runner.of("node.exited") if data.node == "n")
    assert exited.error
    assert exited.next == ["e"]


@pytest.mark.parametrize("kind", ["script", "llm"])
async def test_row_failure_standard_fails_the_run_where_there_is_no_next(agent_runner: AgentRunner, kind: str) -> None:
    agent_runner.agent(failing(kind, rest="description: none"), s="echo boom >&2; exit 1")
    agent_runner.models.script(BAD)
    outcome = await agent_runner.run(compat="standard")
    assert outcome.status == "failed"
    assert outcome.state == {"initial_prompt": ""}


@pytest.mark.parametrize("kind", ["script", "llm"])
async def test_row_failure_loki_fails_the_run(agent_runner: AgentRunner, kind: str) -> None:
    agent_runner.agent(failing(kind), s="echo boom >&2; exit 1")
    agent_runner.models.script(BAD)
    outcome = await agent_runner.run(compat="loki")
    assert outcome.status == "failed"
    assert outcome.state == {"initial_prompt": ""}
    assert agent_runner.warnings == []


# --- row: a missing key in end.output ------------------------------------------------------------------------


async def test_row_a_missing_key_in_an_end_output_is_empty(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        start: e
        nodes:
          e: {type: end, state_updates: {s: "for {{user}}{{gone}}"}, output: "hello {{unknown}}! {{s}}"}
        """
    )
    assert (await agent_runner.run(compat=compat, state={"user": "bob"})).output == "hello ! for bob"


# --- row: an input's default against its validation ----------------------------------------------------------

DEFAULTED = """
start: i
nodes:
  i:
    type: input
    question: "q?"
    default: "é"
    validation: "len(input) >= 3"
    state_updates: {i: "{{input}}"}
    next: e
  e: {type: end, output: "{{i}}"}
"""


async def test_row_default_standard_does_not_check_it(agent_runner: AgentRunner) -> None:
    agent_runner.agent(DEFAULTED)
    assert (await agent_runner.run(compat="standard", answers=[""])).output == "é"


async def test_row_default_loki_checks_it(agent_runner: AgentRunner) -> None:
    agent_runner.agent(DEFAULTED)
    outcome = await agent_runner.run(compat="loki", answers=[""])
    assert outcome.error is not None
    assert has_message(
        outcome.error.message, "engine.graph.input_validation.LengthRule.problem", text="len(input) >= 3", answer=1
    )


# --- row: lengths --------------------------------------------------------------------------------------------


async def test_row_lengths_standard_counts_characters_and_loki_bytes(agent_runner: AgentRunner) -> None:
    agent_runner.agent(DEFAULTED)
    assert (await agent_runner.run(compat="standard", answers=["éa"])).status == "failed"
    assert (await agent_runner.run(compat="loki", answers=["éa"])).output == "éa"


# --- row: a value that contains {{x}} ------------------------------------------------------------------------

INJECTED = """
start: a
nodes:
  a: {type: llm, prompt: "{{a}} {{b}}", state_updates: {c: "{{a}} {{b}}"}, next: e}
  e: {type: end, output: "{{a}} {{b}}"}
"""


@pytest.mark.parametrize(("dialect", "text"), [("standard", "{{b}} X"), ("loki", "X X")])
async def test_row_values_are_expanded_again_in_loki_only(agent_runner: AgentRunner, dialect: str, text: str) -> None:
    agent_runner.agent(INJECTED)
    outcome = await agent_runner.run(compat=dialect, state={"a": "{{b}}", "b": "X"})
    assert agent_runner.models.requests[0].prompt == text
    assert outcome.state["c"] == text
    assert outcome.output == text


# --- row: output, choice, input after a node -----------------------------------------------------------------

SCOPED = """
start: a
nodes:
  a: {type: llm, prompt: p, state_updates: {x: "{{output}}"}, next: i}
  i: {type: input, question: q, state_updates: {x: "{{input}}"}, next: c}
  c: {type: approval, question: q, options: ["y"], routes: {"y": e}, on_other: e, state_updates: {x: "{{choice}}"}}
  e: {type: end}
"""


async def test_row_scoped_names_standard_leaves_nothing_behind(agent_runner: AgentRunner) -> None:
    agent_runner.agent(SCOPED)
    outcome = await agent_runner.run(compat="standard", answers=["i", "y"])
    assert outcome.state == {"initial_prompt": "", "x": "y"}


async def test_row_scoped_names_loki_leaves_null_behind(agent_runner: AgentRunner) -> None:
    agent_runner.agent(SCOPED)
    outcome = await agent_runner.run(compat="loki", answers=["i", "y"])
    assert outcome.state == {"initial_prompt": "", "x": "y", "output": None, "input": None, "choice": None}


async def test_row_scoped_names_that_were_there_before_survive(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(SCOPED)
    before = {"output": "keep", "input": 1, "choice": [2]}
    outcome = await agent_runner.run(compat=compat, answers=["i", "y"], state=before)
    assert {key: outcome.state[key] for key in before} == before


PARALLEL = """
start: d
nodes:
  d: {type: script, script: d.sh, next: [a, b]}
  a: {type: llm, prompt: p, state_updates: {x: "{{output}}"}, next: e}
  b: {type: llm, prompt: p, state_updates: {y: "{{output}}"}, next: e}
  e: {type: end, output: "{{x}}{{y}}"}
"""


async def test_row_scoped_names_collide_between_parallel_llm_nodes_in_loki_only(agent_runner: AgentRunner) -> None:
    agent_runner.agent(PARALLEL, d="echo '{}'")
    assert (await agent_runner.run(compat="standard")).output == "okok"
    outcome = await agent_runner.run(compat="loki")
    assert outcome.error is not None
    assert has_message(outcome.error.message, "engine.graph.reducers.merge_writes.2", key="output", nodes=2)
    agent_runner.agent("reducers: {output: overwrite}\n" + PARALLEL.strip(), d="echo '{}'")
    assert (await agent_runner.run(compat="loki")).output == "okok"


# --- row: a map over a branch that writes no output_key ------------------------------------------------------

MAPPED = """
start: m
nodes:
  m: {{type: map, over: "{{{{items}}}}", as: item, branch: b, collect_into: out, next: e}}
  b: {{{branch}}}
  e: {{type: end, output: "{{{{out}}}}"}}
"""


@pytest.mark.parametrize("branch", ['type: llm, prompt: "{{item}}"', 'type: agent, agent: kid, prompt: "{{item}}"'])
async def test_row_map_standard_collects_the_branchs_result_and_loki_fails(
    agent_runner: AgentRunner, branch: str
) -> None:
    agent_runner.plain("instructions: repeat", name="kid")
    agent_runner.agent(MAPPED.format(branch=branch))
    agent_runner.models.answer_with(lambda request: f"<{request.prompt}>")
    assert (await agent_runner.run(compat="standard", state={"items": ["a", "b"]})).output == '["<a>","<b>"]'
    outcome = await agent_runner.run(compat="loki", state={"items": ["a", "b"]})
    assert outcome.error is not None
    assert has_message(outcome.error.message, "engine.graph.map_decider.MapDecider._result_of", output_key="output")


# --- row: an end node is reached while other lanes run -------------------------------------------------------

RACE = """
start: d
nodes:
  d: {type: script, script: d.sh, next: [e, w]}
  w: {type: script, script: w.sh, state_updates: {}, next: x}
  x: {type: script, script: x.sh, next: e}
  e: {type: end, output: "{{w}}{{x}}"}
"""
PRINTS = {"d": "echo '{}'", "w": """echo '{"w": "w"}'""", "x": """echo '{"x": "x"}'"""}


async def test_row_end_standard_lets_lanes_finish_their_step_and_names_what_it_drops(agent_runner: AgentRunner) -> None:
    agent_runner.agent(RACE, **PRINTS)
    outcome = await agent_runner.run(compat="standard")
    assert outcome.output == "w"
    (warning,) = [data for data in agent_runner.of("run.warning") if data.code == "lanes_dropped"]
    assert (warning.node, "x" in warning.message) == ("e", True)
    assert [(data.node, data.reason) for data in agent_runner.of("node.skipped")] == [("x", "'e' ended the graph")]


async def test_row_end_loki_drops_them_silently(agent_runner: AgentRunner) -> None:
    agent_runner.agent(RACE, **PRINTS)
    outcome = await agent_runner.run(compat="loki")
    assert outcome.output == "w"
    assert agent_runner.warnings == []


async def test_row_end_with_join_all_waits_for_all_lanes(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(RACE.replace("type: end,", "type: end, join: all,"), **PRINTS)
    outcome = await agent_runner.run(compat=compat)
    assert outcome.output == "wx"
    assert outcome.order == ["d", "w", "x", "e"]
    assert agent_runner.warnings == []
