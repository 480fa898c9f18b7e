"""What a node sees, what stays queued, what edges do to what they carry."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.workflow_driver import WorkflowDriver, structure, workflow

from callboard.actors.engine.workflow.edges import Functions
from callboard.actors.engine.workflow.machine.machine import MachineResult
from callboard.actors.engine.workflow.messages import Message, Queue


def said(text: str, *, keep: bool = False) -> Message:
    return Message(role="user", content=text, source="S", keep=keep)


def queued(*messages: Message) -> Queue:
    queue = Queue()
    for message in messages:
        queue.add(message)
    return queue


def texts(messages: Sequence[Message]) -> str:
    return " ".join(message.text for message in messages)


# --- queues -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "left"),
    [
        (0, "k1 k2"),
        (1, "k1 k2"),
        (2, "k1 k2"),
        (3, "k1 k2 c"),
        (4, "k1 b k2 c"),
        (9, "k1 a b k2 c"),
        (-1, "k1 a b k2 c"),
    ],
)
def test_a_window_keeps_what_is_kept_and_then_the_newest(window: int, left: str) -> None:
    queue = queued(said("k1", keep=True), said("a"), said("b"), said("k2", keep=True), said("c"))
    dropped = queue.trim(window)
    assert texts(queue.messages) == left
    assert sorted(texts([*dropped, *queue.messages]).split()) == ["a", "b", "c", "k1", "k2"]


@given(st.lists(st.booleans(), max_size=12), st.integers(-2, 12))
def test_a_window_never_drops_kept_messages_nor_changes_an_order(kept: list[bool], window: int) -> None:
    messages = [said(str(i), keep=keep) for i, keep in enumerate(kept)]
    queue = queued(*messages)
    dropped = queue.trim(window)
    assert [m for m in messages if m in queue.messages] == queue.messages
    assert len(dropped) + len(queue.messages) == len(messages)
    assert not any(message.keep for message in dropped)
    if window >= 0:
        assert len(queue.messages) <= max(window, sum(kept))


@pytest.mark.parametrize(
    ("context", "kept", "left"), [(True, False, "k"), (False, True, "a"), (True, True, ""), (False, False, "k a")]
)
def test_c04_the_two_ways_to_clear_are_apart(context: bool, kept: bool, left: str) -> None:
    queue = queued(said("k", keep=True), said("a"))
    queue.clear(context=context, kept=kept)
    assert texts(queue.messages) == left


KEPT_ALONE = """
graph:
  start: [K]
  nodes:
    - {id: K, type: literal, config: {content: k}}
    - {id: R, type: literal, config: {content: r}}
    - {id: J, type: passthrough, config: {only_last_message: false}}
  edges:
    - {from: K, to: J, keep_message: true, trigger: false}
    - {from: K, to: R}
    - {from: R, to: J, clear_kept_context: true}
"""


@pytest.mark.parametrize(("compat", "seen"), [("standard", "k r"), ("devall", "r")])
def test_clear_kept_context_alone_is_only_what_the_program_knows(compat: str, seen: str) -> None:
    assert texts(WorkflowDriver().run(structure(workflow(KEPT_ALONE, compat))).final_messages) == seen


def played(yaml: str, functions: Functions | None = None) -> tuple[MachineResult, list[tuple[str, str]]]:
    workflow_driver = WorkflowDriver()
    result = workflow_driver.run(structure(workflow(yaml), functions))
    return result, [(id, texts(messages)) for id, messages in workflow_driver.inputs]


def test_c08_an_edge_that_clears_leaves_the_last_of_several_messages() -> None:
    result, _ = played("""
        graph:
          start: [A, B]
          nodes:
            - {id: A, type: literal, config: {content: a}}
            - {id: B, type: literal, config: {content: b}}
            - {id: P, type: passthrough, config: {only_last_message: false}}
            - {id: J, type: passthrough, config: {only_last_message: false}}
          edges:
            - {from: A, to: P}
            - {from: B, to: P}
            - {from: P, to: J, clear_context: true}
    """)
    assert texts(result.final_messages) == "b"


def test_p12_a_role_that_is_kept_goes_through_a_passthrough() -> None:
    _, seen = played("""
        graph:
          start: [A]
          nodes:
            - {id: A, type: literal, config: {content: a, role: assistant}}
            - {id: P, type: passthrough, config: {}}
            - {id: Z, type: agent, config: {provider: stub, name: m}}
          edges: [{from: A, to: P}, {from: P, to: Z}]
    """)
    result, _ = played("""
        graph:
          start: [A]
          nodes:
            - {id: A, type: literal, config: {content: a, role: system}}
            - {id: Z, type: agent, config: {provider: stub, name: m}}
          edges: [{from: A, to: Z}]
    """)
    assert seen[-1] == ("Z", "a")
    assert result.final == "Z<system:a>"


def test_b22_what_a_file_puts_into_a_queue_is_seen_unless_the_graph_starts_there() -> None:
    _, seen = played("""
        graph:
          start: [A]
          nodes:
            - {id: A, type: literal, config: {content: a}, input: [gone]}
            - {id: B, type: passthrough, config: {}, input: [{role: assistant, content: stays}]}
          edges: [{from: A, to: B}]
    """)
    assert seen == [("A", "TASK"), ("B", "stays a")]


def test_e26_a_message_that_is_dropped_triggers_nobody_but_has_cleared() -> None:
    result, seen = played("""
        graph:
          start: [A]
          end: [Z]
          nodes:
            - {id: A, type: literal, config: {content: a}}
            - {id: B, type: literal, config: {content: b}}
            - {id: Z, type: passthrough, config: {only_last_message: false}}
          edges:
            - {from: A, to: Z, trigger: false}
            - {from: A, to: B}
            - from: B
              to: Z
              clear_context: true
              process: {type: regex_extract, config: {pattern: nothing, on_no_match: drop}}
    """)
    assert [id for id, _ in seen] == ["A", "B"]
    assert result.leftover == {}
