"""What docs/graphs.md shows can be read as it stands, and it names every key there is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import msgspec
import pytest
from support.graph_checks import check_text

from callboard.actors.engine.graph.compat import LOKI, STANDARD, Compat
from callboard.protocol.graph import NODE_TYPES, GraphFile, Settings, read_graph
from callboard.protocol.yaml_tree import parse_mapping

DOCS = Path(__file__).parents[4] / "docs"
GRAPHS = (DOCS / "graphs.md").read_text()
COMPATIBILITY = (DOCS / "compatibility.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", GRAPHS, re.DOTALL | re.MULTILINE)
REST = "name: g\nstart: z\nnodes:\n  z: {type: end}\n"


def whole(block: str) -> str:
    """A graph that holds the block: itself, or around a part of the top level, or around some nodes."""
    root, problems = parse_mapping(block, "block")
    assert root is not None, problems
    if "nodes" in root.entries:
        return block
    if set(root.entries) <= set(GraphFile.__struct_fields__):
        return block + REST
    return REST + "".join(f"  {line}\n" for line in block.splitlines())


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split(":")[0])
def test_every_example_can_be_read(block: str) -> None:
    graph, problems = read_graph(whole(block), "docs/graphs.md", strict=True)
    assert problems == []
    assert graph is not None


@pytest.mark.parametrize("block", [block for block in BLOCKS if "\nnodes:" in block])
def test_every_whole_example_is_free_of_problems(block: str) -> None:
    graph, problems = check_text(block, "docs/graphs.md", strict=True)
    assert graph is not None, problems


def test_every_key_is_documented() -> None:
    structs: list[type[msgspec.Struct]] = [GraphFile, Settings, *NODE_TYPES.values()]
    keys = {key for cls in structs for key in cls.__struct_encode_fields__}
    assert sorted(key for key in keys if not re.search(rf"\b{key}\b", GRAPHS)) == []


def test_every_flag_of_compat_is_documented() -> None:
    flags = Compat.__struct_fields__
    assert [flag for flag in flags if f"`{flag}`" not in COMPATIBILITY] == []
    assert [flag for flag in flags if f"    {flag}: " not in (inspect.getdoc(Compat) or "")] == []


def test_the_modes_differ_in_every_flag_but_the_one_both_agree_on() -> None:
    same = [flag for flag in Compat.__struct_fields__ if getattr(STANDARD, flag) == getattr(LOKI, flag)]
    assert same == ["missing_end_keys_are_empty"]
