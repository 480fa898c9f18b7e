"""Pictures of graphs in four forms."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.actors.engine.graph.draw import FORMS, lay_out, picture_of
from callboard.actors.engine.graph.edges import edges
from callboard.protocol.graph import EndNode, Graph, ScriptNode, read_graph

AGENTS = Path(__file__).parents[3] / "fixtures" / "agents"


def graph_of(name: str) -> Graph:
    graph, _ = read_graph((AGENTS / name / "graph.yaml").read_text(), "graph.yaml")
    assert graph is not None
    return graph


EVERY = Graph(
    name='say "<hi>" & more',
    start="one",
    nodes={
        "one": ScriptNode(id="one", script="s.sh", next=("two",), routes=("one", "end"), fallback="end"),
        "two": ScriptNode(id="two", script="s.sh", next=("end",)),
        "end": EndNode(id="end"),
    },
)


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("name", ["coder", "deep-research", "reference"])
def test_every_node_is_in_every_picture(form: str, name: str) -> None:
    graph = graph_of(name)
    picture = FORMS[form](picture_of(graph))
    assert picture.endswith("\n")
    for node_id, node in graph.nodes.items():
        assert node_id in picture
        assert node.kind in picture


def test_mermaid_tells_types_by_shape_and_doubt_by_dots() -> None:
    picture = FORMS["mermaid"](picture_of(EVERY))
    assert picture.startswith("flowchart TD\n")
    assert 'n0["one<br/><i>script</i>"]' in picture
    assert 'n2(["end<br/><i>end</i>"])' in picture
    assert "n0 --> n1" in picture
    assert 'n0 -.->|"fallback"| n2' in picture
    assert "n0 -.-> n0" in picture


def test_dot_is_quoted() -> None:
    picture = FORMS["dot"](picture_of(EVERY))
    assert picture.startswith('digraph "say \\"<hi>\\" & more" {')
    assert '"one" -> "end" [label="fallback", style=dashed];' in picture
    assert '"one" -> "two";' in picture


@pytest.mark.parametrize("graph", [EVERY, graph_of("deep-research")], ids=["small", "large"])
def test_svg_is_well_formed_and_needs_nothing_from_outside(graph: Graph) -> None:
    picture = FORMS["svg"](picture_of(graph))
    root = ET.fromstring(picture)
    space = "{http://www.w3.org/2000/svg}"
    groups = [group for group in root.iter(f"{space}g") if group.get("id", "").startswith("node-")]
    assert len(groups) == len(graph.nodes)
    lines = [path for path in root.iter(f"{space}path") if path.get("marker-end")]
    assert len(lines) == len({(edge.source, edge.target) for edge in edges(graph)})
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")


def test_svg_boxes_do_not_overlap() -> None:
    graph = graph_of("coder")
    layout = lay_out(picture_of(graph), lambda node_id: len(node_id) * 8.0, 20)
    for layer in layout.layers:
        boxes = sorted((layout.centre[node] - len(node) * 4, layout.centre[node] + len(node) * 4) for node in layer)
        assert all(left[1] < right[0] for left, right in pairwise(boxes))


def test_ascii_is_plain_and_marks_the_start_and_the_way_back() -> None:
    picture = FORMS["ascii"](picture_of(graph_of("coder")))
    assert picture.isascii()
    assert "| > script" in picture
    assert "back:\n  " in picture
    assert "fix_loop_gate ..> implement" in picture
    assert not re.search(r"[ \t]+$", picture, re.MULTILINE)


def test_ascii_lists_no_ways_back_where_there_are_none() -> None:
    graph = Graph(name="g", start="end", nodes={"end": EndNode(id="end")})
    assert "back:" not in FORMS["ascii"](picture_of(graph))


def test_lines_lead_down_except_the_ones_that_lead_back() -> None:
    graph = graph_of("deep-research")
    layout = lay_out(picture_of(graph), lambda node_id: 1.0, 1.0)
    layer = {node_id: number for number, row in enumerate(layout.layers) for node_id in row}
    for line in layout.lines:
        assert line.back or layer[line.source] < layer[line.target]
    assert [(line.source, line.target) for line in layout.lines if line.back] == [
        ("reflexion_gate", "research_each_question"),
        ("incorporate_feedback", "research_each_question"),
    ]


@given(st.lists(st.lists(st.integers(0, 7), max_size=3), min_size=1, max_size=8))
@settings(deadline=None, max_examples=60)
def test_any_graph_can_be_drawn(targets: list[list[int]]) -> None:
    nodes = {
        f"n{number}": ScriptNode(id=f"n{number}", script="s.sh", routes=tuple(f"n{target}" for target in row))
        for number, row in enumerate(targets)
    }
    graph = Graph(name="any", start="n0", nodes=dict(nodes))
    for form in FORMS:
        assert FORMS[form](picture_of(graph))
