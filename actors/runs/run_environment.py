"""Environment of a run: its sandbox, the workspace files of its directory, hooks, labels, and stored permissions."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...protocol.control.caller import LOCAL
from ...protocol.placement import PartOf
from ...protocol.requests import RunRequest
from ..io.temporary import LazyDirectory, run_bases
from ..io.tenancy import environ
from ..work.context import RunContext
from ..work.labels.flow import Flow
from ..work.labels.labels import Labels, PathLabels
from ..work.sandbox.grants import Grants
from ..work.sandbox.run_sandbox import Sandbox, is_off, rules_of
from ..work.tools.stored_answers import StoredAnswers
from .loading import RunCallbacks
from .node_tools import wishes_of
from .pinned_files import is_made
from .root import Root
from .target import GraphAgent, Loaded, WorkflowAgent

if TYPE_CHECKING:
    from ...protocol.mcp.config import Server
    from ...protocol.settings import Settings
    from ..work.hooks import Hooks as RunHooks
    from ..work.sandbox.grants import HostRules, PermanentGrants
    from ..work.workspace import Workspace


def absolute(roots: Iterable[str]) -> tuple[Path, ...]:
    """Return directories as absolute paths, relative to the process's working directory, which may differ from the
    run's.
    """
    return tuple(Path(path).expanduser().absolute() for path in roots)


def sandbox_profile(context: RunContext) -> str:
    """Return the sandbox profile of the run's processes."""
    return "off" if context.sandbox is None else context.sandbox.profile


def answers_of_directory(hooks: RunCallbacks, here: Path | None) -> StoredAnswers | None:
    """Return the user's permanent permissions for the run's directory; None for server callers and for playback."""
    if here is None or hooks.owner != LOCAL.subject or hooks.playback is not None:
        return None
    return StoredAnswers(here, environ())


def sandbox(
    request: RunRequest,
    settings: Settings,
    root: Root,
    here: Path | None,
    rules: HostRules,
    kept: PermanentGrants | None,
) -> Sandbox | None:
    """Return the sandbox of the run's processes; None if the user turned it off."""
    if (settings.sandbox == "off" and request.sandbox is None) or request.sandbox == "off":
        return None
    said = rules_of(settings.sandbox, request.sandbox)
    if is_off(said):
        return None
    return Sandbox(
        said,
        here=here or Path.cwd(),
        config_dir=root.config_dir.absolute(),
        environ=environ(),
        temporary=LazyDirectory(request.id or f"run-{secrets.token_hex(4)}", run_bases),
        grants=Grants(rules, kept),
        roots=absolute((*settings.tool_roots, *root.roots, *request.roots)),
    )


def workspace(request: RunRequest, context: RunContext, agent: Loaded) -> Workspace | None:
    """Return the workspace files that the run uses; None if it uses none. Reads files."""
    wanted = request.workspace
    if wanted is None:
        wanted = not is_made(agent) or request.default_tools
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


def hooks(id: str, request: RunRequest, hooks: RunCallbacks, context: RunContext) -> RunHooks | None:
    """Return the run's hooks, from the settings, the workspace and the program; None if there are none."""
    settings, workspace = context.settings, context.workspace
    of_workspace = () if workspace is None else workspace.hooks
    if not settings.hooks and not of_workspace and not hooks.hooks:
        return None
    from ...protocol.hooks import table_of
    from ..work.hooks import Hooks as RunHooks

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


def flow(request: RunRequest, hooks: RunCallbacks, context: RunContext) -> Flow | None:
    """Return the run's label flow with its initial labels; None if labels are off."""
    mode = context.settings.labels
    if mode == "off":
        return None
    typed = request.prompt if request.typed is None else request.typed
    paths = PathLabels(context.cwd or Path("/"), context.environ)
    # The prompt of a remote child comes from its parent run and not from the user.
    made = Flow(mode, paths, "" if request.part is not None else typed)
    if context.sandbox is not None:
        context.sandbox.hears_of_hosts(made.reached)
    # The difference between the prompt and its typed part was read from standard input.
    if request.typed is not None and request.typed != request.prompt:
        made.add(Labels(untrusted=("standard input",), private=("standard input",)))
    if request.parts:
        made.add(Labels(untrusted=("an attached file",), private=("an attached file",)))
    if request.attach:
        made.add(paths.of_any(request.attach, "the attached file"))
    if hooks.labels is not None:
        hooks.labels.begins(made)
    return made


def below(part: PartOf, context: RunContext) -> None:
    """Apply the restrictions of the parent run to a remote child that this process executes."""
    for rules in part.denied:
        context.permissions = context.permissions.below(rules)
    context.max_depth = part.max_depth
    if context.flow is not None:
        context.flow.add(Labels(untrusted=part.untrusted, private=part.private))


def new_servers(servers: Sequence[Server], context: RunContext, root: Root) -> list[Server]:
    """Return a workspace's servers, except for names that the user has configured; none if servers are off."""
    if not context.settings.mcp_server_support or not context.settings.calls_functions:
        return []
    known = {*root.mcp.config.servers, *(server.name for server in context.servers)}
    return [server for server in servers if server.name not in known]
