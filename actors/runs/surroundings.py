"""What stands around a run: its sandbox, what its directory has to say, hooks, labels, answers for good."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...protocol.control.caller import LOCAL
from ...protocol.place import PartOf
from ...protocol.requests import RunRequest
from ..io.temporary import LazyDirectory, run_bases
from ..work.context import RunContext
from ..work.labels.flow import Flow
from ..work.labels.labels import Labels
from ..work.labels.setting import Setting
from ..work.sandbox.grants import Grants
from ..work.sandbox.of_run import Sandbox, is_off, rules_of
from ..work.tools.kept_answers import KeptAnswers
from .loading import Hooks
from .node_tools import wishes_of
from .root import Root
from .target import GraphAgent, Loaded, WorkflowAgent

if TYPE_CHECKING:
    from ...protocol.mcp.config import Server
    from ...protocol.settings import Settings
    from ..work.hooks.hooks import Hooks as RunHooks
    from ..work.sandbox.grants import HostRules, Kept
    from ..work.workspace import Workspace


def absolute(roots: Iterable[str]) -> tuple[Path, ...]:
    """Directories as they are seen from the process's own, which need not be the run's."""
    return tuple(Path(path).expanduser().absolute() for path in roots)


def told_of_sandbox(context: RunContext) -> str:
    """The profile that the run's processes are held to."""
    return "off" if context.sandbox is None else context.sandbox.profile


def kept(hooks: Hooks, here: Path | None) -> KeptAnswers | None:
    """What the user has allowed for good in the run's directory; callers of a server have none of that."""
    if here is None or hooks.owner != LOCAL.subject or hooks.playback is not None:
        return None
    return KeptAnswers(here, os.environ)


def sandbox(
    request: RunRequest, settings: Settings, root: Root, here: Path | None, rules: HostRules, kept: Kept | None
) -> Sandbox | None:
    """What the run's processes are held to; None where the user wants nothing of the kind."""
    if (settings.sandbox == "off" and request.sandbox is None) or request.sandbox == "off":
        return None
    said = rules_of(settings.sandbox, request.sandbox)
    if is_off(said):
        return None
    return Sandbox(
        said,
        here=here or Path.cwd(),
        config_dir=root.config_dir.absolute(),
        environ=os.environ,
        temporary=LazyDirectory(request.id or f"run-{secrets.token_hex(4)}", run_bases),
        grants=Grants(rules, kept),
        roots=absolute((*settings.tool_roots, *request.roots)),
    )


def workspace(request: RunRequest, context: RunContext, agent: Loaded) -> Workspace | None:
    """What the run takes from its directory; None for nothing. Reads files."""
    wanted = request.workspace
    if wanted is None:
        wanted = agent.directory is not None or request.default_tools
    here = context.cwd
    if not wanted or here is None or isinstance(agent, WorkflowAgent):
        return None
    if isinstance(agent, GraphAgent) and not wishes_of(agent.graph):
        return None
    from ..work.workspace import Workspace

    settings = context.settings
    return Workspace(
        here,
        context.config_dir,
        context.environ,
        instructions=settings.workspace_instructions,
        skills=settings.skills_enabled and settings.calls_functions,
    )


def hooks(id: str, request: RunRequest, hooks: Hooks, context: RunContext) -> RunHooks | None:
    """Who has a say in what the run does; None for nobody."""
    settings, workspace = context.settings, context.workspace
    of_workspace = () if workspace is None else workspace.hooks
    if not settings.hooks and not of_workspace and not hooks.hooks:
        return None
    from ...protocol.hooks import table_of
    from ..work.hooks.hooks import Hooks as RunHooks

    here = context.cwd or Path.cwd()
    return RunHooks(
        [table_of(settings.hooks, settings.file), *of_workspace],
        hooks.hooks,
        root=here if workspace is None else workspace.root,
        here=here,
        environ=context.environ,
        run=id,
        yes=request.yes,
        goes_on=hooks.on_history is not None or hooks.session is not None,
    )


def flow(context: RunContext) -> Flow | None:
    """What all who work in the run carry; None where nothing is to be made of that."""
    settings = context.settings
    if settings.labels == "off" or context.cwd is None:
        return None
    return Flow(settings.labels, Setting(context.cwd, context.environ))


def below(part: PartOf, context: RunContext) -> None:
    """Have a run know what stands above it, as a part of another one that is played elsewhere."""
    for rules in part.denied:
        context.permissions = context.permissions.below(rules)
    context.max_depth = part.max_depth
    if context.flow is not None:
        context.flow.add(Labels(untrusted=part.untrusted, private=part.private))


def new_servers(servers: Sequence[Server], context: RunContext, root: Root) -> list[Server]:
    """Those of a workspace that the user has none of that name for, where servers are used at all."""
    if not context.settings.mcp_server_support or not context.settings.calls_functions:
        return []
    known = {*root.mcp.config.servers, *(server.name for server in context.servers)}
    return [server for server in servers if server.name not in known]
