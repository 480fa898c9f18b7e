"""The check of a file takes time as the file is long, whatever its nodes do."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from support.cpu_time import slowness
from support.graph_checks import check_text

from callboard.actors.engine.graph.findings import MOST_PROBLEMS
from callboard.protocol.problems import errors_in

MANY = [2_500, pytest.param(10_000, marks=pytest.mark.soak)]
"""Nodes; ten thousand show what grows faster than the file four times as clearly, and take a second each."""

SECONDS = 1.2e-3
"""Of the processor for a node, a multiple of what it takes."""

sizes = pytest.mark.parametrize("many", MANY)

SHAPES: dict[str, Callable[[int, int], str]] = {
    "a chain": lambda n, _: f"n{n}: {{type: llm, prompt: '{{{{initial_prompt}}}}', next: n{n + 1}}}",
    "keys handed on": lambda n, _: (
        f"n{n}: {{type: llm, prompt: '{{{{k{n}}}}}', state_updates: {{k{n + 1}: x}}, next: n{n + 1}}}"
    ),
    "nodes that are not there": lambda n, _: f"n{n}: {{type: llm, prompt: p, next: m{n}}}",
    "keys that nothing writes": lambda n, _: f"n{n}: {{type: llm, prompt: '{{{{zebra{n}}}}}', next: n{n + 1}}}",
    "keys that are unknown": lambda n, _: f"n{n}: {{type: llm, prompt: p, promt: p, fallbak: x, next: n{n + 1}}}",
    "values that can't be read": lambda n, _: f"n{n}: {{type: llm, prompt: 5, next: n{n + 1}}}",
    "nothing leads to them": lambda n, many: f"n{n}: {{type: llm, prompt: p, next: n{many}}}",
    "no way on": lambda n, _: f"n{n}: {{type: llm, prompt: p, fallback: n{n + 1}}}",
    "circles": lambda n, _: f"n{n}: {{type: llm, prompt: p, next: n{n + 1}, fallback: n0}}",
}


def graph_of(nodes: list[str], many: int) -> str:
    lines = "".join(f"  {node}\n" for node in nodes)
    return f"name: g\nstart: n0\nnodes:\n{lines}  n{many}: {{type: end}}\n"


def seconds_of(text: str) -> float:
    began = time.process_time()
    check_text(text, "graph.yaml")
    return time.process_time() - began


@pytest.mark.sample(3)
@sizes
@pytest.mark.parametrize("shape", SHAPES)
def test_thousands_of_nodes_are_checked_in_seconds(shape: str, many: int) -> None:
    assert (
        seconds_of(graph_of([SHAPES[shape](number, many) for number in range(many)], many))
        < SECONDS * many * slowness()
    )


@sizes
def test_a_fan_out_of_thousands_is_checked_in_seconds(many: int) -> None:
    members = [
        f"n{n}: {{type: llm, prompt: '{{{{initial_prompt}}}}', state_updates: {{k{n}: x}}, next: n{many}}}"
        for n in range(1, many)
    ]
    targets = ", ".join(f"n{n}" for n in range(1, many))
    assert (
        seconds_of(graph_of([f"n0: {{type: llm, prompt: p, next: [{targets}]}}", *members], many))
        < SECONDS * many * slowness()
    )
    shared = [member.replace("initial_prompt", "k").replace(f"k{n}: x", "k: x") for n, member in enumerate(members, 1)]
    assert (
        seconds_of(graph_of([f"n0: {{type: llm, prompt: p, next: [{targets}]}}", *shared], many))
        < SECONDS * many * slowness()
    )


@sizes
@pytest.mark.parametrize("longer", [False, True])
def test_thousands_of_fan_outs_one_after_another_are_checked_in_seconds(longer: bool, many: int) -> None:
    count = many // 4
    nodes = []
    for number in range(count):
        following = f"n{number + 1}" if number + 1 < count else f"n{many}"
        nodes.append(f"n{number}: {{type: llm, prompt: p, next: [l{number}, r{number}]}}")
        nodes.append(f"l{number}: {{type: llm, prompt: p, next: {following}}}")
        nodes.append(f"r{number}: {{type: llm, prompt: p, next: {f's{number}' if longer else following}}}")
        nodes += [f"s{number}: {{type: llm, prompt: p, next: {following}}}"] if longer else []
    assert seconds_of(graph_of(nodes, many)) < SECONDS * many * slowness()


def test_of_thousands_of_errors_some_are_listed_and_the_last_says_that_there_are_more() -> None:
    many = 10_000
    text = graph_of([SHAPES["nodes that are not there"](number, many) for number in range(many // 2)], many)
    _, problems = check_text(text, "graph.yaml")
    errors = errors_in(problems)
    assert len(errors) == MOST_PROBLEMS
    assert errors[-1].message.endswith(f"(and there are more errors than the {MOST_PROBLEMS} that are listed)")
    assert len(errors[0].hint or "") < 500
