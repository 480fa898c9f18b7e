"""ChatDev's functions of edges: each decides or changes what a workflow of ours carries."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from corpus.strangers import WORKS, Seen, attempts, cannot, check, corpus, needs

import callboard

CONDITIONS = {
    "contains_keyword": ("a Trigger", "nothing"),
    "not_contains_keyword": ("nothing", "a Trigger"),
    "length_greater_than_5": ("longer", "short"),
    "always_false": (None, "anything"),
    "code_pass": ("42", "==CODE EXECUTION FAILED=="),
    "code_fail": ("==CODE EXECUTION FAILED==", "42"),
    "need_reflection_loop": ("Verdict: CONTINUE", "Verdict: STOP"),
    "should_stop_loop": ("verdict : done", "no verdict"),
}
"""A text that is carried, and one that is not."""

PROGRAM = "main.py\n```python\nprint(6 * 7)\n```"

WORKFLOW = """
graph:
  start: [A]
  end: [B]
  nodes:
    - {id: A, type: passthrough, config: {}}
    - {id: B, type: passthrough, config: {}}
  edges:
    - {from: A, to: B, EDGE}
"""


def functions_of(root: Path) -> Iterator[tuple[str, str]]:
    for kind in ("edge", "edge_processor"):
        for file in sorted((root / "functions" / kind).glob("*.py")):
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                    yield f"functions/{kind}/{file.name}", f"edge {node.name}"


@pytest.mark.parametrize(("file", "what"), attempts("chatdev", functions_of, what="edge"))
async def test_its_functions_of_edges_decide_and_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, what: str
) -> None:
    functions = corpus("chatdev") / "functions"
    monkeypatch.setenv("MAC_EDGE_FUNCTIONS_DIR", str(functions / "edge"))
    monkeypatch.setenv("MAC_EDGE_PROCESSOR_FUNCTIONS_DIR", str(functions / "edge_processor"))
    name = what.split()[1]
    check("chatdev", file, what, await (decided(tmp_path, name) if name in CONDITIONS else changed(tmp_path, name)))


async def carried(place: Path, edge: str, text: str) -> str:
    """What comes out at the other end of an edge."""
    (place / "flow.yaml").write_text(WORKFLOW.replace("EDGE", edge))
    outcome = await callboard.run(place / "flow.yaml", text, config_dir=place)
    assert outcome.error is None
    return outcome.output


async def decided(place: Path, name: str) -> Seen:
    edge = f"condition: {{type: function, config: {{name: {name}}}}}"
    yes, no = CONDITIONS[name]
    seen = [await carried(place, edge, text) for text in (yes, no) if text is not None]
    return WORKS if seen == [yes, ""][2 - len(seen) :] else cannot(f"it lets through {seen}")


async def changed(place: Path, name: str) -> Seen:
    edge = f"process: {{type: function, config: {{name: {name}}}}}"
    if name == "uppercase_payload":
        return WORKS if await carried(place, edge, "abc") == "ABC" else cannot("it changes nothing")
    seen = await carried(place, edge, PROGRAM)
    assert seen.startswith(PROGRAM)
    return needs("the program uv") if "uv: not found" in seen else WORKS if "42" in seen else cannot(seen[-200:])
