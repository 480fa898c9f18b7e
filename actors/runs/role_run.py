"""Runs in a role: `RunRequest.role` becomes an agent, the prompt as the role embeds it, and the role's examples.

The conversion happens once, when a run begins, for every source of runs: the command line, HTTP, and a turn of a
session whose file names a role. Lists, titles and events show the user's own words.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...protocol.agent import Agent
from ...protocol.errors import UsageError
from ...protocol.problems import Problem
from ...protocol.requests import RunRequest
from ...protocol.role import Role, role_of_prompt
from ..io.tenancy import environ
from ..work.roles import agent_in_role, examples, find, prompt_in_role
from .file_checks import check_listed
from .loading import RunCallbacks
from .target import LoopAgent

if TYPE_CHECKING:
    from ...protocol.settings import Settings
    from .root import Root


def in_role(request: RunRequest, hooks: RunCallbacks, root: Root) -> tuple[RunRequest, RunCallbacks]:
    """Return the request without its role, and the hooks with the agent that the role makes. Reads the role's file.

    Raises:
        NotFound, InvalidFile, UsageError: the role does not exist; its file has errors; its arguments do not fit.
        UsageError: the request names an agent, a graph or a workflow; the role's prompt is too long, alone or with the
            user's prompt.
        Denied: the caller may not use the model that the role names.
    """
    settings = hooks.settings or root.settings
    role, agent = role_of(request, root.config_dir), _agent(request, hooks)
    own_tools = not request.default_tools and bool(agent.global_tools or agent.mcp_servers)
    if hooks.check_model is not None and role.model and not request.model and agent.model is None:
        # The file is checked as it is executed: it may have changed since the request was checked.
        hooks.check_model(role.model)
    agent = agent_in_role(agent, role, model=request.model, own_tools=own_tools, settings=settings.other)
    unserved = None if own_tools else without_servers(role, settings)
    if unserved is not None:
        agent = msgspec.structs.replace(agent, mcp_servers=())
    cwd = None if request.cwd is None else Path(request.cwd).absolute()
    functions = tuple(tool.name for tool in hooks.tools)
    made = LoopAgent.of(agent, check_listed(agent, functions, root.registry))
    shown = role.source.file or "the prompt"
    problems = [msgspec.structs.replace(each, file=shown, key=None) for each in made.problems]
    playing = msgspec.structs.replace(
        request,
        target=agent,
        role=None,
        role_prompt=None,
        prompt=request.prompt if request.says_nothing else prompt_in_role(role, request.prompt, environ(), cwd),
        history=request.history or examples(role, environ(), cwd),
    )
    if unserved is not None:
        hint = f"set `mcp_server_support: true` in {settings.file}"
        problems.append(Problem(severity="warning", code="mcp_off", message=unserved, file=shown, hint=hint))
    loaded = msgspec.structs.replace(made, problems=(*role.problems, *problems))
    return playing, msgspec.structs.replace(hooks, loaded=loaded)


def role_of(request: RunRequest, config_dir: Path) -> Role:
    """Return the role that a request names, or the one made from its `role_prompt`. Raises as `in_role` does."""
    if request.role is not None:
        return find(request.role, config_dir)
    return role_of_prompt(request.role_prompt or "")


def without_servers(role: Role, settings: Settings) -> str | None:
    """Return a warning that a role answers without its MCP servers; None if it names none, or MCP is on."""
    if not role.servers or settings.mcp_server_support:
        return None
    return f"role '{role.called}' uses MCP servers, but MCP is turned off: the role answers without them"


def _agent(request: RunRequest, hooks: RunCallbacks) -> Agent:
    """Return the agent that gets the role: one made by a program, or a bare model named `ask`."""
    if isinstance(hooks.loaded, LoopAgent) and hooks.loaded.directory is None:
        return hooks.loaded.agent
    if isinstance(request.target, Agent):
        return request.target
    if hooks.loaded is None and not request.target:
        return Agent(name="ask", can_ask_user=False)
    name = request.target or (hooks.loaded.name if hooks.loaded is not None else "")
    raise UsageError(f"a role can't be combined with an agent, and '{name}' is one: leave out the role or the agent")
