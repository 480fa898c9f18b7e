"""A run that goes on over a failure has failed, unless the author of the file has accepted it."""

from __future__ import annotations

import textwrap

import pytest
from support.agent_runs import AgentRunner
from support.fake_models import Reply, Request
from support.messages import has_message

import callboard
from callboard.protocol.outcome import ErrorReport, Outcome

NOT_FOUND = Reply(status=404, error="no such model")

HAIKU = """
start: write
nodes:
  write: {{type: llm, prompt: "{{{{initial_prompt}}}}", max_attempts: 1, state_updates: {{poem: "{{{{output}}}}"}},
          next: done{more}}}
  done: {{type: end, output: "{{{{poem}}}}"}}
  spare: {{type: end, output: "spare"}}
"""


def haiku(more: str = "") -> str:
    return HAIKU.format(more=more and f", {more}")


def reported(outcome: Outcome) -> list[tuple[str | None, str]]:
    return [(failure.node, failure.code) for failure in outcome.failures]


def kept_its_output(outcome: Outcome, failure: ErrorReport) -> None:
    assert outcome.status == "failed"
    assert outcome.output.startswith("LLM node failed: ")
    assert failure.message in outcome.output
    assert outcome.failures == [failure]
    assert outcome.error == failure


# --- what has failed, and what not ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "code", "exit_code", "says"),
    [
        (NOT_FOUND, "model", 1, "no such model (HTTP 404)"),
        (Reply(status=429, error="slow down"), "upstream", 6, "slow down (HTTP 429)"),
        (Reply(status=500, error="broken"), "upstream", 6, "broken (HTTP 500)"),
        (Reply("an answer that is torn off", drop="middle"), "upstream", 6, "in the middle"),
        (Reply(""), "empty_reply", 6, "produced no output"),
        (Reply(drop="at once"), "upstream", 6, "fake:model: "),
        (Reply(raw=b"<html><title>Log in</title>", headers={"content-type": "text/html"}), "model", 1, "Log in"),
    ],
    ids=["404", "429", "500", "torn", "empty", "cut", "page"],
)
async def test_a_model_call_that_fails_fails_the_run_which_keeps_its_output(
    agent_runner: AgentRunner, reply: Reply, code: str, exit_code: int, says: str
) -> None:
    agent_runner.agent(haiku())
    agent_runner.models.answer_with(lambda _: reply)
    outcome = await agent_runner.run("frogs", no_wait=True)
    assert outcome.error is not None
    assert says in outcome.error.message
    kept_its_output(outcome, ErrorReport(code=code, message=outcome.error.message, node="write"))
    assert outcome.exit_code == exit_code
    assert agent_runner.events[-1].kind == "run.failed"
    assert agent_runner.events[-1].data.outcome == outcome.to_wire()
    agent_runner.check_stream()


async def test_a_host_that_can_not_be_reached_fails_the_run(agent_runner: AgentRunner) -> None:
    agent_runner.agent(haiku())
    config = agent_runner.config_dir / "config.yaml"
    config.write_text(config.read_text().replace(f":{agent_runner.models.port}/", ":9/"))
    async with callboard.Root(config_dir=agent_runner.config_dir) as root:
        outcome = await callboard.run("g", "frogs", root=root)
    assert (outcome.status, outcome.exit_code, reported(outcome)) == ("failed", 6, [("write", "upstream")])


async def test_a_refused_key_ends_the_run_where_it_is(agent_runner: AgentRunner) -> None:
    agent_runner.agent(haiku())
    agent_runner.models.answer_with(lambda _: Reply(status=401, error="bad key"))
    outcome = await agent_runner.run("frogs")
    assert (outcome.status, outcome.exit_code, outcome.output, outcome.failures) == ("failed", 3, "", [])


async def test_a_script_that_crashes_fails_the_run_which_goes_on(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        """
        start: s
        nodes:
          s: {type: script, script: s.sh, next: e}
          e: {type: end, output: "the end"}
        """,
        s="kill -9 $$",
    )
    outcome = await agent_runner.run()
    assert (outcome.status, outcome.exit_code, outcome.output) == ("failed", 1, "the end")
    assert reported(outcome) == [("s", "node_failed")]


@pytest.mark.parametrize("accepts", ["fallback: spare", "on_error: continue", "on_error: collect"])
async def test_a_failure_that_its_author_has_accepted_is_none_of_the_run(
    agent_runner: AgentRunner, accepts: str, compat: str
) -> None:
    agent_runner.agent(haiku(accepts))
    agent_runner.models.answer_with(lambda _: NOT_FOUND)
    outcome = await agent_runner.run("frogs", compat=compat)
    assert (outcome.status, outcome.exit_code, outcome.failures, outcome.error) == ("done", 0, [], None)


async def test_a_run_without_failures_says_so(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(haiku())
    outcome = await agent_runner.run("frogs", compat=compat)
    assert (outcome.status, outcome.output, outcome.to_wire()["failures"]) == ("done", "ok", [])


# --- the first cause -----------------------------------------------------------------------------------------


async def test_what_a_first_failure_leads_to_does_not_hide_it(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        """
        start: fetch
        nodes:
          fetch: {type: script, script: fetch.sh, next: write}
          write: {type: llm, prompt: "sum up {{text}}", next: done}
          done: {type: end}
        """,
        fetch="echo no network >&2; exit 7",
    )
    outcome = await agent_runner.run()
    assert outcome.error == ErrorReport(
        code="node_failed",
        message="Script 'fetch.sh' failed with exit code 7:\nno network (the run continued, and failed later: "
        "at node 'write': Template interpolation failed: 'text' not found in state)",
        node="fetch",
    )
    assert (outcome.status, outcome.output, outcome.exit_code) == ("failed", "", 1)
    assert reported(outcome) == [("fetch", "node_failed")]


async def test_the_first_of_several_failures_is_the_runs_and_all_are_listed_in_order(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        """
        start: one
        nodes:
          one: {type: llm, prompt: "1", max_attempts: 1, next: two}
          two: {type: script, script: two.sh, next: three}
          three: {type: llm, prompt: "3", max_attempts: 1, next: e}
          e: {type: end, output: "end"}
        """,
        two="exit 1",
    )
    agent_runner.models.script(Reply(status=503, error="down"), NOT_FOUND)
    outcome = await agent_runner.run()
    assert reported(outcome) == [("one", "upstream"), ("two", "node_failed"), ("three", "model")]
    assert outcome.error == outcome.failures[0]
    assert outcome.exit_code == 6


# --- maps ------------------------------------------------------------------------------------------------------

MAPPED = """
start: m
nodes:
  m: {{type: map, over: "{{{{items}}}}", as: item, branch: b, output_key: said, collect_into: found, next: e{more}}}
  b: {{type: llm, prompt: "{{{{item}}}}", max_attempts: 1, state_updates: {{said: "{{{{output}}}}"}}}}
  e: {{type: end, output: "{{{{found}}}}"}}
"""


def refuses_b(request: Request) -> Reply | str:
    return NOT_FOUND if request.prompt == "b" else request.prompt


@pytest.mark.parametrize(("more", "status"), [("", "failed"), (", on_error: continue", "done")])
async def test_an_item_that_loki_takes_for_answered_fails_the_run_unless_the_map_accepts_it(
    agent_runner: AgentRunner, more: str, status: str
) -> None:
    agent_runner.agent(MAPPED.format(more=more))
    agent_runner.models.answer_with(refuses_b)
    outcome = await agent_runner.run(state={"items": ["a", "b", "c"]}, compat="loki")
    assert outcome.status == status
    assert "LLM node failed" in outcome.output
    assert reported(outcome) == ([] if more else [("b", "model")])


# --- agents below ----------------------------------------------------------------------------------------------

CALLER = """
start: a
nodes:
  a: {{type: agent, agent: kid, prompt: go, state_updates: {{r: "{{{{output}}}}"}}, next: e{more}}}
  e: {{type: end, output: "got {{{{r}}}}"}}
  spare: {{type: end, output: "spare"}}
"""


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ("", "failed"),
        (", fallback: spare", "failed"),
        (", on_error: continue", "done"),
        (", on_error: collect", "done"),
    ],
)
async def test_what_a_child_graph_goes_on_over_fails_the_run_unless_the_node_above_accepts_it(
    agent_runner: AgentRunner, more: str, status: str
) -> None:
    agent_runner.agent(haiku(), name="kid")
    agent_runner.agent(CALLER.format(more=more))
    agent_runner.models.answer_with(lambda _: NOT_FOUND)
    outcome = await agent_runner.run()
    assert outcome.output.startswith("got LLM node failed: ")
    assert outcome.status == status
    assert reported(outcome) == ([("write", "model")] if status == "failed" else [])
    ends = {data.graph: data.error is None for data in agent_runner.of("graph.finished")}
    assert ends == {"kid": False, "g": status == "done"}


FAILS_LATER = """
start: a
nodes:
  a: {type: llm, prompt: p, max_attempts: 1, next: b}
  b: {type: script, script: b.sh, on_error: fail, next: e}
  e: {type: end}
"""


async def test_a_child_that_fails_in_the_end_tells_its_first_cause(agent_runner: AgentRunner) -> None:
    agent_runner.agent(FAILS_LATER, name="kid", b="exit 1")
    agent_runner.agent(CALLER.format(more=""))
    agent_runner.models.answer_with(lambda _: Reply(status=503, error="down"))
    outcome = await agent_runner.run()
    assert outcome.error is not None
    assert has_message(outcome.error.message, "engine.graph.result.run_error", first="…'kid'…")
    assert "at node 'b': Script 'b.sh' failed with exit code 1" in outcome.error.message
    assert (outcome.error.node, outcome.error.code, outcome.exit_code) == ("a", "upstream", 6)


async def test_the_fallback_of_an_agent_node_accepts_all_that_the_child_failed_with(agent_runner: AgentRunner) -> None:
    agent_runner.agent(FAILS_LATER, name="kid", b="exit 1")
    agent_runner.agent(CALLER.format(more=", fallback: spare"))
    agent_runner.models.answer_with(lambda _: NOT_FOUND)
    outcome = await agent_runner.run()
    assert (outcome.status, outcome.output, outcome.failures) == ("done", "spare", [])


async def test_an_attempt_that_is_made_again_leaves_no_failures_behind(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        """
        start: a
        nodes:
          a: {type: llm, prompt: first, max_attempts: 1, next: b}
          b: {type: llm, prompt: then, max_attempts: 1, on_error: fail, next: e}
          e: {type: end, output: ok}
        """,
        name="kid",
    )
    agent_runner.agent(CALLER.format(more=", max_attempts: 2"))
    agent_runner.models.script(NOT_FOUND, Reply(status=503, error="down"), "fine", "fine")
    outcome = await agent_runner.run()
    assert (outcome.status, outcome.output, outcome.failures) == ("done", "got ok", [])


async def test_a_plain_agent_whose_model_fails_has_failed(agent_runner: AgentRunner) -> None:
    agent_runner.plain("instructions: Be brief.\ncan_ask_user: false", name="kid")
    agent_runner.models.answer_with(lambda _: NOT_FOUND)
    outcome = await agent_runner.run("hello", target="kid")
    assert (outcome.status, outcome.output, outcome.exit_code, outcome.failures) == ("failed", "", 1, [])
    agent_runner.agent(CALLER.format(more=""))
    assert (await agent_runner.run()).status == "failed"


# --- workflows -------------------------------------------------------------------------------------------------

WORKFLOW = """
compat: {compat}
graph:
  start: [A]
  nodes:
    - {{id: A, type: agent, {more}config: {{provider: fake, name: model, retry: {{enabled: false}}}}}}
    - {{id: B, type: passthrough, config: {{}}}}
  edges: [{{from: A, to: B}}]
"""

NESTED = """
compat: devall
graph:
  start: [S]
  nodes:
    - id: S
      type: subgraph
      {more}
      config:
        type: config
        config:
          start: [A]
          end: [A]
          nodes: [{{id: A, type: agent, config: {{provider: fake, name: model, retry: {{enabled: false}}}}}}]
          edges: []
  edges: []
"""


def workflow(agent_runner: AgentRunner, text: str) -> str:
    path = agent_runner.config_dir / "flow.yaml"
    path.write_text(textwrap.dedent(text))
    return str(path)


@pytest.mark.parametrize(
    ("compat", "more", "status", "said"),
    [
        ("standard", "", "failed", False),
        ("standard", "on_error: continue, ", "done", True),
        ("devall", "", "failed", True),
        ("devall", "on_error: continue, ", "done", True),
        ("devall", "on_error: fail, ", "failed", False),
    ],
)
async def test_a_workflows_agent_that_fails_fails_the_run_unless_its_author_accepts_it(
    agent_runner: AgentRunner, compat: str, more: str, status: str, *, said: bool
) -> None:
    agent_runner.models.answer_with(lambda _: Reply(status=503, error="down"))
    outcome = await agent_runner.run("hi", target=workflow(agent_runner, WORKFLOW.format(compat=compat, more=more)))
    assert outcome.status == status
    assert ("down" in outcome.output) is said
    assert outcome.exit_code == (6 if status == "failed" else 0)
    assert reported(outcome) == ([("A", "upstream")] if status == "failed" and said else [])


@pytest.mark.parametrize(("more", "status"), [("", "failed"), ("on_error: continue", "done")])
async def test_what_a_subgraph_goes_on_over_fails_the_run_unless_its_node_accepts_it(
    agent_runner: AgentRunner, more: str, status: str
) -> None:
    agent_runner.models.answer_with(lambda _: NOT_FOUND)
    outcome = await agent_runner.run("hi", target=workflow(agent_runner, NESTED.format(more=more)))
    assert outcome.status == status
    assert "no such model" in outcome.output
    assert reported(outcome) == ([] if more else [("A", "model")])


async def test_what_an_agent_of_ours_goes_on_over_fails_the_workflow(agent_runner: AgentRunner) -> None:
    agent_runner.agent(haiku(), name="kid")
    agent_runner.models.answer_with(lambda _: NOT_FOUND)
    config = "config: {provider: callboard, name: kid}"
    text = f"graph: {{start: [A], nodes: [{{id: A, type: agent, {config}}}], edges: []}}"
    outcome = await agent_runner.run("hi", target=workflow(agent_runner, text))
    assert outcome.output.startswith("LLM node failed: ")
    assert (outcome.status, reported(outcome)) == ("failed", [("write", "model")])


# --- ends that say so ----------------------------------------------------------------------------------------

JUDGE = """
start: j
nodes:
  j: {type: script, script: j.sh, next: e}
  e: {type: end, output: "looked at {{initial_prompt}}", error: "{{problem}}"}
"""


@pytest.mark.parametrize("problem", ["2 tests fail", "", "  "])
async def test_an_end_with_an_error_fails_the_run_which_keeps_its_output(
    agent_runner: AgentRunner, problem: str
) -> None:
    agent_runner.agent(JUDGE, j=f"""echo '{{"problem": "{problem}"}}'""")
    outcome = await agent_runner.run("it")
    assert outcome.output == "looked at it"
    if problem.strip():
        assert (outcome.status, outcome.exit_code, outcome.failures) == ("failed", 1, [])
        assert outcome.error == ErrorReport(code="failed_end", message=problem, node="e")
        assert agent_runner.events[-1].kind == "run.failed"
    else:
        assert (outcome.status, outcome.exit_code, outcome.error) == ("done", 0, None)
    agent_runner.check_stream()


async def test_an_agent_node_falls_back_from_a_graph_that_ended_with_an_error(agent_runner: AgentRunner) -> None:
    agent_runner.agent(JUDGE, name="kid", j="""echo '{"problem": "2 tests fail"}'""")
    agent_runner.agent(
        """
        start: a
        nodes:
          a: {type: agent, agent: kid, prompt: go, fallback: f, state_updates: {r: "{{output}}"}, next: e}
          e: {type: end, output: fine}
          f: {type: end, output: "fell back: {{r}}"}
        """
    )
    outcome = await agent_runner.run("it")
    assert outcome.status == "done"
    assert outcome.output.startswith("fell back: ")
    assert "2 tests fail" in outcome.output
