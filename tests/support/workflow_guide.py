"""The examples of DevAll's guide, and what they leave out: a provider, a store, the other end of an edge."""

from __future__ import annotations

import re
from typing import Any

import yaml

from support.workflow_files import FILES

EXAMPLES: dict[str, str] = dict(
    re.findall(r"^## ([^\n]+)\n\n```yaml\n(.*?)^```$", (FILES / "guide.md").read_text(), re.MULTILINE | re.DOTALL)
)


def example(name: str, **more: Any) -> str:
    """A whole workflow around an example; `more` are keys of its graph that the example has not.

    What stands in the example stays as it is. Ends of edges that are no nodes of it become passthroughs, agents get
    `{fake}` and a name, stores are simple, and whatever nothing leads to is where it starts.
    """
    value = yaml.safe_load(EXAMPLES[name])
    graph: dict[str, Any] = {"end": [], **_graph(value), **more}
    nodes = list(graph.get("nodes", ()))
    edges = graph.setdefault("edges", [])
    known = {node["id"] for node in nodes}
    ends = dict.fromkeys(end for edge in edges for end in (edge["from"], edge["to"]))
    nodes += [{"id": end, "type": "passthrough", "config": {}} for end in ends if end not in known]
    agents = [node["config"] for node in nodes if node["type"] == "agent"]
    for config in agents:
        config.setdefault("provider", "PROVIDER")
        config.setdefault("name", "m")
    stores = {store["name"]: store for store in graph.get("memory", ())}
    for node in nodes:
        for use in node["config"].get("memories", ()):
            stores.setdefault(use["name"], {"name": use["name"], "type": "simple"})
    led = {edge["to"] for edge in edges}
    graph.setdefault("start", [node["id"] for node in nodes if node["id"] not in led])
    whole = {"graph": {**graph, "nodes": nodes, "memory": list(stores.values())}}
    # In the flow style `{fake}` can bring keys of its own.
    text = yaml.safe_dump(whole, default_flow_style=True, width=10**6, sort_keys=False)
    return text.replace("provider: PROVIDER", "{fake}")


def _graph(value: Any) -> dict[str, Any]:
    """The parts of a graph that an example is."""
    if isinstance(value, list):
        return {"edges": value} if "from" in value[0] else {"nodes": value}
    if "graph" in value:
        graph: dict[str, Any] = value["graph"]
        return graph
    if "nodes" in value or "edges" in value:
        return dict(value)
    if "condition" in value:
        return {"edges": [{"from": "A", "to": "B", **value}]}
    node = value if "type" in value else {"type": "agent", "config": value}
    return {"nodes": [{"id": "N", **node}]}
