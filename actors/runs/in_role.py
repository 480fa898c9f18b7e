"""Runs in a role: `RunRequest.role` becomes an agent, the prompt as the role embeds it, and the role's examples.

This happens once, when a run begins, wherever it comes from: the command line, HTTP, a turn of a session whose file
names a role. The user's own words stay what lists, titles and events show.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...protocol.agent import Agent
from ...protocol.errors import UsageError
from ...protocol.problems import Problem
from ...protocol.requests import RunRequest
from ...protocol.role import Role, role_of_prompt
from ..work.roles.cast import cast, examples, said
from ..work.roles.files import find
from .file_checks import check_listed
from .loading import Hooks
from .target import LoopAgent

if TYPE_CHECKING:
    from ...protocol.settings import Settings
    from .root import Root


def in_role(request: RunRequest, hooks: Hooks, root: Root) -> tuple[RunRequest, Hooks]:
    """The request without its role, and the hooks with the agent that the role makes. Reads the role's file.

    Raises:
        NotFound, InvalidFile, UsageError: there is no such role; its file has errors; its arguments don't fit.
        UsageError: the request names an agent, a graph or a workflow; the role's prompt is too long, or becomes so with
            what is said.
        Denied: the caller may not have the model that the role names.
    """
    settings = hooks.settings or root.settings
    role, agent = role_of(request, root.config_dir), _agent(request, hooks)
    own_tools = not request.default_tools and bool(agent.global_tools or agent.mcp_servers)
    if hooks.check_model is not None and role.model and not request.model and agent.model is None:
        hooks.check_model(role.model)  # of the file as it is played, which may be another than when the request came
    agent = cast(agent, role, model=request.model, own_tools=own_tools, settings=settings.other)
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
        prompt=request.prompt if request.says_nothing else said(role, request.prompt, os.environ, cwd),
        history=request.history or examples(role, os.environ, cwd),
    )
    if unserved is not None:
        hint = f"set `mcp_server_support: true` in {settings.file}"
        problems.append(Problem(severity="warning", code="mcp_off", message=unserved, file=shown, hint=hint))
    loaded = msgspec.structs.replace(made, problems=(*role.problems, *problems))
    return playing, msgspec.structs.replace(hooks, loaded=loaded)


def role_of(request: RunRequest, config_dir: Path) -> Role:
    """The role that a request names, or the one that its prompt for the role makes. Raises as `in_role` does."""
    if request.role is not None:
        return find(request.role, config_dir)
    return role_of_prompt(request.role_prompt or "")


def without_servers(role: Role, settings: Settings) -> str | None:
    """Why the role answers without the MCP servers that it names; None if it names none, or they are used."""
    if not role.servers or settings.mcp_server_support:
        return None
    return f"role '{role.called}' wants MCP servers, and MCP is turned off: it answers without them"


def _agent(request: RunRequest, hooks: Hooks) -> Agent:
    """The agent that gets the role: the one a program has made, or a model by itself."""
    if isinstance(hooks.loaded, LoopAgent) and hooks.loaded.directory is None:
        return hooks.loaded.agent
    if isinstance(request.target, Agent):
        return request.target
    if hooks.loaded is None and not request.target:
        return Agent(name="ask", can_ask_user=False)
    name = request.target or (hooks.loaded.name if hooks.loaded is not None else "")
    raise UsageError(f"a role is for a conversation without an agent, and '{name}' answers by its own file")
