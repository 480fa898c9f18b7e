"""Random graphs of workflows: up to six nodes of all kinds that need nothing from outside, with any edges."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from callboard.protocol.workflow.cycles import cycles_of
from callboard.protocol.workflow.model import (
    AgentConfig,
    Always,
    ByLines,
    ByMessage,
    Dynamic,
    Edge,
    FunctionProcessor,
    Graph,
    KeywordCondition,
    LiteralConfig,
    LoopCounterConfig,
    LoopTimerConfig,
    Never,
    Node,
    NodeConfig,
    PassthroughConfig,
    RegexExtract,
    Seed,
    SubgraphConfig,
    Template,
)

IDS = "abcdef"


def agent(says: list[str]) -> AgentConfig:
    return AgentConfig(provider="stub", name="m", params={"seq": says})


def failing(times: int) -> AgentConfig:
    return AgentConfig(provider="stub", name="m", params={"raise": "broken", "raise_times": times, "reply": "y"})


MOSTLY = st.sampled_from([True, True, True, False])
WORDS = st.sampled_from(["x", "y", "x y", "x\ny\nx"])


@st.composite
def configs(draw: st.DrawFn, id: str, *, subgraphs: bool, failures: bool) -> NodeConfig:
    inner = SubgraphConfig(
        graph=Graph(
            nodes=(
                Node(id=f"{id}1", type="passthrough", config=PassthroughConfig(only_last_message=False)),
                Node(id=f"{id}2", type="agent", context_window=-1, config=agent(["x", "y"])),
            ),
            edges=(
                Edge(source=f"{id}1", target=f"{id}2"),
                Edge(source=f"{id}2", target=f"{id}1", condition=KeywordCondition(any=("y",))),
            ),
            start=(f"{id}1",),
            end=(f"{id}2",),
            max_iterations=2,
        )
    )
    kinds: list[st.SearchStrategy[NodeConfig]] = [
        st.builds(LiteralConfig, content=WORDS, role=st.sampled_from(["user", "assistant", "system"])),
        st.builds(PassthroughConfig, only_last_message=st.booleans()),
        st.builds(agent, st.lists(WORDS, min_size=1, max_size=3)),
        st.builds(LoopTimerConfig, max_duration=st.just(1.0), passthrough=st.booleans(), reset_on_emit=st.booleans()),
        st.builds(LoopCounterConfig, max_iterations=st.integers(1, 2), reset_on_emit=st.booleans()),
    ]
    if subgraphs:
        kinds.append(st.just(inner))
    if failures:
        kinds.append(st.builds(failing, st.integers(0, 1)))
    return draw(st.one_of(kinds))


CONDITIONS = st.sampled_from(
    [Always(), Always(), Always(), Never(), KeywordCondition(any=("x",)), KeywordCondition(none=("y",))]
)
PROCESSORS = st.sampled_from(
    [
        None,
        None,
        None,
        RegexExtract(pattern="x", on_no_match="drop"),
        Template(template="{{content}} {{a}}"),
        FunctionProcessor(name="uppercase_payload"),
    ]
)
DYNAMICS = st.none() | st.builds(
    Dynamic,
    type=st.sampled_from(["map", "tree"]),
    split=st.sampled_from([ByMessage(), ByLines()]),
    group_size=st.just(2),
)


@st.composite
def graphs(
    draw: st.DrawFn, *, acyclic: bool = False, subgraphs: bool = True, failures: bool = True, dynamic: bool = False
) -> Graph:
    """Up to six nodes of all kinds that need nobody outside, with any edges between them."""
    ids = IDS[: draw(st.integers(3, len(IDS)))]
    nodes = [
        Node(
            id=id,
            type="any",
            context_window=draw(st.sampled_from([0, 0, 0, 1, 2, -1])),
            on_error=draw(st.sampled_from(["fail", "continue"])),
            input=draw(st.sampled_from([(), (Seed(role="user", content="x"),)])),
            config=draw(configs(id, subgraphs=subgraphs, failures=failures)),
        )
        for id in ids
    ]
    dynamics = {id: draw(DYNAMICS) for id in ids}
    # Something leads to every node, so that most of them run.
    edges = [
        Edge(
            source=ids[draw(st.integers(max(0, i - 2), i - 1))],
            target=ids[i],
            dynamic=dynamics[ids[i]] if dynamic else None,
        )
        for i in range(1, len(ids))
    ]
    if draw(st.booleans()):  # and what they say meets somewhere
        edges += [Edge(source=id, target=ids[-1]) for id in ids[:-2]]
    if not acyclic and draw(st.booleans()):  # and often everything goes round
        edges.append(Edge(source=ids[-1], target="a", condition=draw(CONDITIONS)))
    for source, target in draw(st.lists(st.tuples(st.sampled_from(ids), st.sampled_from(ids)), max_size=len(ids))):
        if acyclic and source >= target:
            continue
        edges.append(
            Edge(
                source=source,
                target=target,
                trigger=draw(MOSTLY),
                carry_data=draw(MOSTLY),
                keep_message=draw(st.booleans()),
                clear_context=not draw(MOSTLY),
                clear_kept_context=not draw(MOSTLY),
                condition=draw(CONDITIONS),
                process=draw(PROCESSORS),
                dynamic=dynamics[target] if draw(st.booleans()) else None,
            )
        )
    graph = Graph(
        nodes=tuple(nodes),
        edges=tuple(edges),
        end=tuple(draw(st.lists(st.sampled_from(ids), max_size=2, unique=True))),
        max_iterations=draw(st.integers(2, 3)),
    )
    return starting(graph, [*dict.fromkeys(["a", draw(st.sampled_from(ids))])])


def starting(graph: Graph, start: list[str]) -> Graph:
    """The graph with these start nodes, one for each cycle at most."""
    for cycle in cycles_of(graph):
        for extra in [id for id in start if id in cycle][1:]:
            start.remove(extra)
    return msgspec.structs.replace(graph, start=tuple(start))
