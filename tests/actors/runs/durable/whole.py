"""One run with everything: a turn of a session, of a graph whose nodes are those of `everything`, an agent with its
family (`family`), and a workflow (`flow`). More than three hundred rows, each of the tools' effects counted outside.

    whole      scripts, a map, llm nodes with tools, an input, two lanes, an agent with a todo list, a loop, approvals
    ├─ lead    children two deep, tasks, letters, escalations, three questions open at once, an MCP server
    └─ flow    code, people, tools, memories, thinking, a loop counter, subgraphs, maps, edge functions, an agent
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import everything
import family
import flow
from everything import KilledRun
from family import KilledFamily
from support.fake_models import FakeModels, Reply, Request

from callboard.actors.runs.sessions.store import SessionStore

GRAPH = everything.GRAPH.replace("name: g\n", "name: whole\n").replace(
    "  done: {type: end, ",
    """  kin: {type: agent, agent: lead, prompt: hello, state_updates: {kin: "{{output}}"}, next: flow}
  flow: {type: agent, agent: FLOW, prompt: hello, state_updates: {flow: "{{output}}"}, next: done}
  done: {type: end, """,
)
GRAPH = GRAPH.replace("routes: [loop, done]", "routes: [loop, kin]").replace(
    '{{round}}"}', '{{round}}||{{kin}}||{{flow}}"}'
)

FLOW = flow.FLOW.replace("name: helper", "name: flow_helper")
HELPER = flow.HELPER.replace("HELPER", "FLOW HELPER").replace("name: helper", "name: flow_helper")
ROLES = ("LEAD", "WRITER", "EACH", "LOW", "SUM", "LAST", "FLOW HELPER")
"""What the agents of the workflow are told first."""

FLOW_HELPER = "flow_helper"
"""The effect of the workflow's own agent."""

OF_FLOW = {FLOW_HELPER if name == "helper" else name: count for name, count in flow.EFFECTS.items()}
EFFECTS = {**dict.fromkeys([*everything.EFFECTS, *family.EFFECTS], 1), **OF_FLOW}
"""How often each is done to the world."""

CALLS = {*everything.CALLS, *family.EFFECTS, "make_file", FLOW_HELPER}
"""Effects that a model has called for."""


class KilledWholeRun(KilledFamily):
    """Where it is played."""

    def __init__(self, home: Path, models: FakeModels) -> None:
        self._flow = home / "flow"
        super().__init__(home, models)

    def write(self, config: Path) -> None:
        KilledRun.write(self, config)
        super().write(config)
        flow.write(self._flow, self.world, flow=FLOW, attached=False)
        agents = config / "agents"
        (agents / "g").rename(agents / "whole")
        turn = agents / "whole" / "turn.sh"
        turn.write_text(turn.read_text().replace('\\"done\\"', '\\"kin\\"'))
        (agents / "whole" / "graph.yaml").write_text(GRAPH.replace("FLOW", str(self._flow / "flow.yaml")))
        (agents / "flow_helper").mkdir()
        (agents / "flow_helper" / "config.yaml").write_text(HELPER)

    async def play(self, **order: Any) -> dict[str, Any] | None:
        told = {"target": "whole", "prompt": "hello", "answers": flow.ANSWERS, "session": "bridges"}
        return await super().play(**{**told, **order})

    def _say(self, request: Request) -> Reply:
        system = request.system
        if system.startswith("AGENT "):
            return super()._say(request)
        of_flow = system.startswith(ROLES)
        answer = flow.answer(self.world, helper=FLOW_HELPER) if of_flow else everything.answer(self.world)
        said: Reply = answer(request)
        return said

    def said_in_session(self) -> list[tuple[str, str]]:
        """The texts of the session, and who has said each."""
        store = SessionStore(self.config)
        id = store.resolve_alias("bridges", "whole")
        assert id is not None
        return [(each["role"], each["content"]) for each in store.open(id, "whole").session.messages]
