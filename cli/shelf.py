"""What `callboard tools list` and `callboard tools show` print."""

from __future__ import annotations

import json
import sys

from ..actors.runs.target import load_agent
from .render.table import columns
from .render.text import json_object, safe
from .toolbox import BUILT_IN, Toolbox, ToolSeen

_PERMISSIONS = {"allow": "runs without asking", "ask": "asks a person first", "deny": "is denied"}


def list_tools(agent_name: str | None, config_dir: str | None, *, as_json: bool) -> tuple[str, bool]:
    """All tools, an agent's own first, and whether a tool file has errors. Those go to stderr."""
    box = Toolbox(config_dir)
    tools, problems = box.everywhere()
    own: list[ToolSeen] = []
    if agent_name is not None:
        own = box.own(load_agent(agent_name, config_dir=config_dir))
    if as_json:
        found = [tool.to_wire() for tool in (*own, *tools)]
        text = json_object(tools=found)
    else:
        text = _listed(agent_name, own, tools, str(box.base / "functions" / "tools"))
    for problem in problems:
        sys.stderr.write(safe(str(problem)) + "\n")
    return text, any(problem.severity == "error" for problem in problems)


def show_tool(name: str, agent_name: str | None, config_dir: str | None, *, as_json: bool) -> str:
    """One tool: for people, or as JSON.

    Raises:
        UsageError: there is no such tool.
        InvalidFile: its file has errors.
    """
    agent = None if agent_name is None else load_agent(agent_name, config_dir=config_dir)
    tool = Toolbox(config_dir).one(name, agent)
    if as_json:
        return json_object(**tool.to_wire())
    schema = json.dumps(tool.tool.spec.parameters, indent=2, ensure_ascii=False)
    facts = [["from", tool.source], ["does", tool.effect], ["a call", _PERMISSIONS[tool.permission]]]
    told = [f"  {line}" for line in safe(tool.tool.spec.description.strip()).splitlines()]
    return "\n".join([safe(tool.name), *told, "", *columns(facts), "", safe(schema)]) + "\n"


def _listed(agent: str | None, own: list[ToolSeen], tools: list[ToolSeen], folder: str) -> str:
    yours = [tool for tool in tools if tool.source != BUILT_IN]
    ours = [tool for tool in tools if tool.source == BUILT_IN]
    lines: list[str] = []
    if agent is not None:
        lines += [f"of {safe(agent)}" + (f" ({safe(own[0].source)})" if own else ""), *(_rows(own) or ["  none"])]
    lines += [f"yours ({safe(folder)})", *(_rows(yours) or ["  none yet (one .sh, .py or .ts file per tool)"])]
    lines += ["built in", *(_rows(ours) or ["  none (each name is taken by one of yours)"])]
    return "\n".join(lines) + "\n"


def _rows(tools: list[ToolSeen]) -> list[str]:
    asks = {"allow": "", "ask": "asks first", "deny": "denied"}
    return columns([[tool.name, asks[tool.permission], tool.summary] for tool in tools])
