"""The recorded runs of DevAll's own engine that have agents, with our agents and a model behind a socket.

The recordings were made with two providers that exist nowhere else (see `support.workflow_driver`); here a server has
their part.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.fake_models import Reply, Request
from support.workflow_agents import Agents, said

RECORDED = Path(__file__).parents[4] / "fixtures" / "workflows" / "devall.json"
CASES: dict[str, dict[str, Any]] = {
    case["name"]: case
    for case in json.loads(RECORDED.read_text())
    if "stub" in case["yaml"] and case["expected"]["error"] is None
}
CITY = '''
def get_city_num(city: str = "") -> str:
    """Looks up the number of a city."""
    return '{\\n  "city_num": 3701\\n}'
'''


class Stubs:
    """Both providers; which of them, and for which node, they are told among the `params`."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()

    def __call__(self, request: Request) -> Reply | str:
        body = request.json
        id = body["stub_id"]
        self._calls[id] += 1
        call = self._calls[id]
        sent = " ; ".join(f"{role}:{content}" for role, content in said(request))
        if body["stub"] == "tstub":
            if said(request)[-1][0] == "tool":
                return f"final{call} after {sent}"
            return Reply(text=f"calling{call}", calls=[("get_city_num", {})])
        if "reply" in body:
            return str(body["reply"])
        if "seq" in body:
            return str(body["seq"][min(call, len(body["seq"])) - 1])
        return f"{id}<{sent}>"


def with_stubs(graph: Any, base_url: str) -> None:
    """Have a graph's agents, also those of its subgraphs, ask the server."""
    for node in graph.get("nodes") or ():
        config = node.get("config")
        if node["type"] == "agent" and config["provider"] in ("stub", "tstub"):
            params = {**(config.get("params") or {}), "stub": config["provider"], "stub_id": node["id"]}
            config.update(provider="openai", base_url=base_url, api_key="k", params=params)
        elif node["type"] == "subgraph" and config["type"] == "config":
            with_stubs(config["config"], base_url)


@pytest.mark.parametrize("name", CASES)
async def test_a_recorded_run_with_agents_is_repeated_over_the_wire(name: str, agents: Agents) -> None:
    case, expected = CASES[name], CASES[name]["expected"]
    functions = agents.home / "functions" / "function_calling"
    functions.mkdir(parents=True)
    (functions / "city.py").write_text(CITY)
    document = yaml.safe_load(case["yaml"])
    with_stubs(document["graph"], agents.models.openai_base)
    agents.models.answer_with(Stubs())
    result = await agents.run(
        yaml.safe_dump(document, sort_keys=False), case["task_prompt"], compat="devall", answers=case["human_answers"]
    )
    assert result.error is None
    failed = str(expected["final"]).startswith("Error calling model")
    if failed:  # in our words
        assert result.output.startswith("Error calling model m: ")
        assert result.output.split("\n\n", 1)[1] == expected["final"].split("\n\n", 1)[1]
    else:
        assert result.output == expected["final"]
        messages = [[message.role, message.text] for message in result.final_messages]
        assert messages[: len(expected["final_messages"])] == expected["final_messages"]
    leftover = {
        id: [[message.role, message.source, message.text, message.keep] for message in queue]
        for id, queue in result.leftover.items()
    }
    assert leftover == expected["leftover"]
    if case["stable_over_3_runs"]:
        assert result.order[: len(expected["order"])] == expected["order"]
