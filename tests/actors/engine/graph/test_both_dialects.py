"""What holds in both dialects: mistakes are never tolerated, timeouts interrupt, failed steps leave no trace."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from support.agent_runs import AgentRunner
from support.fake_models import Reply
from support.messages import fragment, has_message
from support.waiting import is_written, jump_when

import callboard

MAPPED = """
start: m
nodes:
  m: {{type: map, over: "{{{{items}}}}", as: item, branch: b, collect_into: out, next: e}}
  b: {{{branch}}}
  e: {{type: end, output: "{{{{out}}}}"}}
"""


# --- in both: mistakes of the graph are never tolerated ------------------------------------------------------

TOLERANT = 'fallback: f, state_updates: {k: "{{output}}"}, next: f'


@pytest.mark.parametrize("escape", [TOLERANT, "on_error: continue, next: f", "on_error: collect, next: f"])
async def test_both_a_missing_key_is_not_a_nodes_own_failure(
    agent_runner: AgentRunner, compat: str, escape: str
) -> None:
    agent_runner.agent(
        f"""
        start: a
        nodes:
          a: {{type: llm, prompt: "{{{{gone}}}} {{{{away}}}}", {escape}}}
          f: {{type: end, output: tolerated}}
        """
    )
    outcome = await agent_runner.run(compat=compat)
    assert outcome.error is not None
    text = "at node 'a': Template interpolation failed: 'gone', 'away' not found in state"
    assert outcome.error.message == text
    assert (outcome.error.code, outcome.exit_code) == ("graph", 1)


@pytest.mark.parametrize("escape", ["fallback: f", "on_error: continue", "on_error: collect"])
async def test_both_an_unknown_next_is_not_tolerated(agent_runner: AgentRunner, compat: str, escape: str) -> None:
    agent_runner.agent(
        f"""
        start: d
        nodes:
          d: {{type: script, script: d.sh, next: [a, b]}}
          a: {{type: script, script: a.sh, {escape}, state_updates: {{}}, next: f}}
          b: {{type: script, script: b.sh, {escape}, state_updates: {{}}, next: f}}
          f: {{type: end, output: tolerated}}
        """,
        d="echo '{}'",
        a="""echo '{"_next": "ghost"}'""",
        b="""echo '{"_next": "phantom"}'""",
    )
    outcome = await agent_runner.run(compat=compat)
    assert outcome.error is not None
    key = "engine.graph.decider.GraphDecider._enter.2"
    assert has_message(outcome.error.message, key, unknown="…'phantom'", name="g")
    assert (outcome.error.code, outcome.exit_code) == ("graph", 1)


async def test_both_two_writers_without_a_reducer_name_all_keys_and_all_writers(
    agent_runner: AgentRunner, compat: str
) -> None:
    agent_runner.agent(
        """
        start: d
        nodes:
          d: {type: script, script: d.sh, next: [a, b, c]}
          a: {type: script, script: w.sh, fallback: f, state_updates: {}, next: f}
          b: {type: script, script: w.sh, on_error: continue, state_updates: {}, next: f}
          c: {type: script, script: w.sh, on_error: collect, state_updates: {}, next: f}
          f: {type: end, output: tolerated}
        """,
        d="echo '{}'",
        w="""printf '{"k": "%s", "l": "%s"}' $$ $$""",
    )
    outcome = await agent_runner.run(compat=compat)
    assert outcome.error is not None
    assert outcome.error.message.count(fragment("engine.graph.reducers.merge_writes.2", nodes="3")) == 2
    assert outcome.error.message.count("a, b, c") == 2
    assert outcome.state == {"initial_prompt": ""}
    assert outcome.exit_code == 1


async def test_both_the_visit_cap_is_not_tolerated(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        settings: {max_loop_iterations: 2}
        start: a
        nodes:
          a: {type: script, script: a.sh, fallback: f, on_error: continue, routes: [a], next: f}
          f: {type: end, output: tolerated}
        """,
        a="""echo '{"_next": "a"}'""",
    )
    outcome = await agent_runner.run(compat=compat)
    assert outcome.error is not None
    assert outcome.error.message.startswith(
        fragment("engine.graph.decider.GraphDecider._enter", id="a", visits="3", cap="2")
    )
    assert outcome.exit_code == 1


async def test_both_a_mistake_beside_failures_is_what_the_run_ends_with(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        start: d
        nodes:
          d: {type: script, script: d.sh, next: [a, b, c]}
          a: {type: script, script: a.sh, on_error: fail, state_updates: {}, next: f}
          b: {type: llm, prompt: "{{gone}}", on_error: continue, next: f}
          c: {type: script, script: c.sh, timeout: 0.1, on_error: fail, state_updates: {}, next: f}
          f: {type: end, output: tolerated}
        """,
        d="echo '{}'",
        a="exit 1",
        c="sleep 600",
    )
    outcome = await agent_runner.run(compat=compat)
    assert outcome.error is not None
    assert (outcome.error.code, outcome.exit_code) == ("graph", 1)
    for culprit in ("at node 'a': Script", "at node 'b': Template", "at node 'c': Script 'c.sh' timed out"):
        assert culprit in outcome.error.message


@pytest.mark.parametrize("on_error", ["continue", "collect"])
async def test_both_a_mistake_in_an_item_is_not_tolerated_by_its_map(
    agent_runner: AgentRunner, compat: str, on_error: str
) -> None:
    agent_runner.agent(
        f"""
        start: m
        nodes:
          m: {{type: map, over: "{{{{items}}}}", as: item, branch: b, collect_into: out, output_key: o, next: e,
              on_error: {on_error}}}
          b: {{type: llm, prompt: "{{{{item.name}}}}", on_error: {on_error}, state_updates: {{o: "{{{{output}}}}"}}}}
          e: {{type: end}}
        """
    )
    outcome = await agent_runner.run(compat=compat, state={"items": [{"name": "x"}, {}, {}]})
    assert outcome.error is not None
    assert outcome.error.code == "graph"
    assert "sub-branch [0]" not in outcome.error.message
    assert "sub-branch [1]" in outcome.error.message
    assert "sub-branch [2]" in outcome.error.message
    assert has_message(outcome.error.message, "engine.graph.templates._complaint", names="'item.name'")


@pytest.mark.parametrize("mistake", ["missing key", "unknown next", "visit cap", "nobody to ask"])
async def test_both_a_mistake_in_a_child_graph_is_not_tolerated_by_its_caller(
    agent_runner: AgentRunner, compat: str, mistake: str
) -> None:
    node = {
        "missing key": 'type: llm, prompt: "{{gone}}"',
        "unknown next": "type: script, script: ghost.sh",
        "visit cap": "type: script, script: loop.sh, routes: [n]",
        "nobody to ask": "type: input, question: q",
    }[mistake]
    agent_runner.agent(
        f"""
        settings: {{max_loop_iterations: 2}}
        start: n
        nodes:
          n: {{{node}, next: e}}
          e: {{type: end}}
        """,
        name="kid",
        ghost="""echo '{"_next": "ghost"}'""",
        loop="""echo '{"_next": "n"}'""",
    )
    agent_runner.agent(
        """
        start: a
        nodes:
          a: {type: agent, agent: kid, prompt: p, fallback: f, on_error: continue, max_attempts: 3, next: f}
          f: {type: end, output: tolerated}
        """
    )
    outcome = await agent_runner.run(compat=compat)
    assert outcome.error is not None
    assert outcome.error.message.startswith("at node 'a': Agent 'kid' failed: ")
    assert outcome.exit_code == (5 if mistake == "nobody to ask" else 1)
    assert outcome.error.code == ("nobody_to_ask" if mistake == "nobody to ask" else "graph")
    assert [data.depth for data in agent_runner.of("graph.started")] == [0, 1]


# --- in both: every timeout interrupts in the middle ---------------------------------------------------------


async def test_both_a_nodes_timeout_interrupts_an_llm_call(
    agent_runner: AgentRunner, compat: str, mock_clock: trio.testing.MockClock
) -> None:
    agent_runner.agent(
        """
        start: a
        nodes:
          a: {type: llm, prompt: p, timeout: 1, fallback: f, state_updates: {k: "{{output}}"}, next: f}
          f: {type: end, output: "{{k}}"}
        """
    )
    agent_runner.models.script(Reply("never", hold=trio.Event()))
    async with trio.open_nursery() as nursery:

        async def pass_the_time() -> None:
            await agent_runner.models.arrived(1)
            mock_clock.jump(1)

        nursery.start_soon(pass_the_time)
        outcome = await agent_runner.run(compat=compat)
    assert has_message(outcome.output, "engine.graph.run._timeout_text.2", seconds=1)
    await agent_runner.models.until(lambda server: server.cut == 1)


CHILD = """
start: a
nodes:
  a: {{type: agent, agent: kid, prompt: p, timeout: 1, on_error: fail, next: f}}
  f: {{type: end}}
"""


@pytest.mark.parametrize("inside", ["llm", "question"])
async def test_both_an_agent_nodes_timeout_interrupts_the_child_in_the_middle(
    agent_runner: AgentRunner, compat: str, inside: str, mock_clock: trio.testing.MockClock
) -> None:
    node = "type: llm, prompt: p" if inside == "llm" else "type: input, question: q"
    agent_runner.agent(f"start: n\nnodes:\n  n: {{{node}, next: e}}\n  e: {{type: end}}", name="kid")
    agent_runner.agent(CHILD.format())
    agent_runner.models.answer_with(lambda request: Reply("never", hold=trio.Event()))
    async with trio.open_nursery() as nursery:

        def watch(event: callboard.Event) -> None:
            if event.kind == "actor.waiting":
                nursery.start_soon(jump)

        async def jump() -> None:
            if inside == "llm":
                await agent_runner.models.arrived(1)
            mock_clock.jump(1)

        if inside == "llm":
            nursery.start_soon(jump)
        with agent_runner.root.questions.attach(_Silent()):
            outcome = await agent_runner.run(compat=compat, on_event=watch)
    assert outcome.error is not None
    assert has_message(outcome.error.message, "engine.graph.run._timeout_text.2", seconds=1)
    assert outcome.exit_code == 4
    assert agent_runner.root.questions.open == ()
    # The child is gone before its node is left.
    ends = [event for event in agent_runner.events if event.kind == "actor.stopped" and event.actor.endswith("/a/kid")]
    left = next(event for event in agent_runner.events if event.kind == "node.exited" and event.data.node == "a")
    assert ends[0].seq < left.seq
    agent_runner.check_stream()


class _Silent:
    """A front end whose person never answers."""

    name = "silent"

    def asked(self, question: object) -> None:
        pass

    def closed(self, question_id: str, by: str) -> None:
        pass


@pytest.mark.parametrize("what", ["graph", "run"])
async def test_both_the_graphs_and_the_runs_timeout_interrupt_a_map(
    agent_runner: AgentRunner, compat: str, what: str, mock_clock: trio.testing.MockClock
) -> None:
    settings = "settings: {timeout: 1}" if what == "graph" else ""
    limits = callboard.Limits(timeout=1) if what == "run" else None
    agent_runner.agent(
        settings + MAPPED.format(branch='type: llm, prompt: p, state_updates: {output: "{{output}}"}'),
    )
    agent_runner.models.answer_with(lambda request: Reply("never", hold=trio.Event()))
    async with trio.open_nursery() as nursery:

        async def pass_the_time() -> None:
            await agent_runner.models.arrived(3)
            mock_clock.jump(1)

        nursery.start_soon(pass_the_time)
        outcome = await agent_runner.run(compat=compat, state={"items": [1, 2, 3]}, limits=limits)
    assert outcome.status == "failed"
    assert (outcome.error is not None and outcome.error.code, outcome.exit_code) == ("timeout", 4)
    assert "out" not in outcome.state
    await agent_runner.models.until(lambda server: server.cut == 3)
    agent_runner.check_stream()


@pytest.mark.parametrize("what", ["node", "graph", "run"])
async def test_both_every_timeout_interrupts_a_script_with_all_it_started(
    agent_runner: AgentRunner,
    compat: str,
    what: str,
    tmp_path: Path,
    nursery: trio.Nursery,
    mock_clock: trio.testing.MockClock,
) -> None:
    agent_runner.agent(
        f"""
        settings: {{timeout: {60 if what == "graph" else 600}}}
        start: s
        nodes:
          s: {{type: script, script: s.sh, timeout: {60 if what == "node" else 600}, on_error: fail, next: e}}
          e: {{type: end}}
        """,
        s=f"sleep 600 & echo $! > {tmp_path}/helper; wait",
    )
    limits = callboard.Limits(timeout=60) if what == "run" else None
    nursery.start_soon(jump_when, mock_clock, partial(is_written, tmp_path / "helper"), 60)
    outcome = await agent_runner.run(compat=compat, limits=limits)
    assert outcome.exit_code == 4
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "helper").read_text()), 0)


async def test_both_a_timeout_interrupts_a_question(
    agent_runner: AgentRunner, compat: str, mock_clock: trio.testing.MockClock
) -> None:
    agent_runner.agent(
        "settings: {timeout: 1}\nstart: i\nnodes:\n  i: {type: input, question: q, next: e}\n  e: {type: end}"
    )

    def watch(event: callboard.Event) -> None:
        if event.kind == "actor.waiting":
            mock_clock.autojump_threshold = 0

    with agent_runner.root.questions.attach(_Silent()):
        outcome = await agent_runner.run(compat=compat, on_event=watch)
    assert outcome.exit_code == 4
    assert [data.reason for data in agent_runner.of("question.expired")] == ["cancelled"]
    assert agent_runner.root.questions.open == ()


# --- in both: what failed leaves no half of its work ---------------------------------------------------------


async def test_both_a_failed_steps_writes_are_not_merged(agent_runner: AgentRunner, compat: str) -> None:
    agent_runner.agent(
        """
        start: d
        nodes:
          d: {type: script, script: d.sh, state_updates: {u: "set"}, next: [a, b]}
          a: {type: script, script: a.sh, state_updates: {}, next: e}
          b: {type: script, script: b.sh, state_updates: {}, on_error: fail, next: e}
          e: {type: end}
        """,
        d="""echo '{"d": 1}'""",
        a="""echo '{"a": 1}'""",
        b="exit 1",
    )
    outcome = await agent_runner.run(compat=compat)
    assert outcome.status == "failed"
    assert outcome.state == {"initial_prompt": "", "d": 1, "u": "set"}
    assert outcome.order == ["d", "a", "b"]


async def test_both_a_script_that_succeeds_and_whose_update_is_wrong_leaves_nothing(
    agent_runner: AgentRunner, compat: str
) -> None:
    agent_runner.agent(
        """
        start: d
        reducers: {k: sum}
        nodes:
          d: {type: script, script: d.sh, fallback: e, state_updates: {k: "not a number"}, next: e}
          e: {type: end}
        """,
        d="""echo '{"d": 1}'""",
    )
    outcome = await agent_runner.run(compat=compat, state={"k": 1})
    assert outcome.error is not None
    assert has_message(outcome.error.message, "engine.graph.reducers._mismatch.3", name="sum", value="string…")
    assert outcome.state == {"initial_prompt": "", "k": 1}
