"""What `callboard run` and `callboard ask` do: read what was given, open the root, show progress, write the result.

The three front ends of a run (progress on stderr, prompts on the terminal, the result on stdout) hang on the
same stream of events; none of them can hold the run up.
"""

from __future__ import annotations

import os
import sys
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from .. import Agent, Root
from ..actors.io.last_reply import keep_reply
from ..actors.io.lines import from_any_thread
from ..actors.runs.execution import INTERRUPTED
from ..actors.runs.hooks import Hooks
from ..actors.runs.tool_checks import KnownServers
from ..protocol.errors import ConfigError, NobodyToAsk, ShuttingDown, UsageError
from ..protocol.events import Event, RunStarted
from ..protocol.mcp.config import WHOLE, spelled_out, split
from ..protocol.outcome import Outcome
from ..protocol.requests import RunRequest
from ..protocol.settings import Settings
from . import logging
from .frame import person_at_terminal, play
from .in_session import Wish, run_in_session
from .odd_settings import told_already
from .render.plain import choose
from .render.progress import Progress
from .render.result import Result, for_format
from .render.text import safe, with_node
from .stdin import prompt_text

if TYPE_CHECKING:
    from ..actors.front.server.serving import Served


@dataclass(frozen=True, kw_only=True)
class AdHoc:
    """An agent that has no directory: what `callboard ask` runs.

    Attributes:
        instructions: its system prompt.
        tools: the names of its tools, and `mcp:<server>` for those of a server; none for what the settings say.
    """

    instructions: str
    tools: tuple[str, ...]

    def agent(self, root: Root) -> Agent:
        """The agent.

        Raises:
            UsageError: there is no tool, or no server, of that name.
            ConfigError: it names a server, and MCP is turned off.
        """
        if self.tools:
            tools = [name for name in self.tools if not name.startswith(WHOLE)]
            servers = [name.removeprefix(WHOLE) for name in self.tools if name.startswith(WHOLE)]
            known = KnownServers(root.config_dir, root.settings)
            _check(servers, known, root.settings)
        else:
            tools = split(root.settings.enabled_tools)
            servers = _enabled(root) if root.settings.mcp_server_support else []
        for name, hint in root.shelf.unknown(tools if self.tools else ()):
            server = KnownServers(root.config_dir, root.settings).behind(name)
            if server is not None:
                hint = f"all that MCP server '{server}' has: --tool {WHOLE}{server}"
            raise UsageError(f"there is no tool '{name}'; {hint}")
        return Agent(
            name="ask",
            instructions=self.instructions,
            global_tools=tuple(tools),
            mcp_servers=tuple(servers),
            can_ask_user=False,
        )


def _check(servers: list[str], known: KnownServers, settings: Settings) -> None:
    """What the command line says of servers has to name some, and they have to be wanted at all."""
    if "" in servers:
        raise UsageError(f"--tool {WHOLE} names no MCP server: --tool {WHOLE}NAME (callboard mcp list)")
    if servers and not settings.mcp_server_support:
        raise ConfigError(
            f"--tool {WHOLE}{servers[0]}: MCP is turned off; set `mcp_server_support: true` in {settings.file}"
        )
    for name in known.spelled_out(servers):
        hint = known.missing(name)
        if hint is not None and not known.cut_short:  # else the run tells what is wrong with the file
            raise UsageError(f"there is no MCP server '{name}'; {hint}")


def _enabled(root: Root) -> list[str]:
    """The servers that the settings name, each of which has to be there."""
    names = split(root.settings.enabled_mcp_servers)
    for name in names:
        for server in spelled_out([name], root.settings.mapping_mcp_servers, root.mcp.names):
            if server not in root.mcp.config.servers:
                try:
                    root.mcp.get(server)
                except UsageError as error:
                    raise UsageError(f"`enabled_mcp_servers` of {_origin(root)}: {error}") from None
    return names


def _origin(root: Root) -> str:
    name = "CALLBOARD_ENABLED_MCP_SERVERS"
    return f"the environment ({name})" if os.environ.get(name) else root.settings.file


@dataclass(frozen=True, kw_only=True)
class Manner:
    """The flags of `callboard run` and `callboard ask` that are not about the run itself, as click read them.

    `reads_stdin` is false for a command whose prompt is complete: it leaves standard input alone. `adhoc` is what runs
    in place of a target.
    """

    adhoc: AdHoc | None = None
    reads_stdin: bool = True
    no_input: bool
    output: str
    dry_run: bool = False
    session: str | None = None
    save_session: bool | None = None
    ui: bool = False
    quiet: bool
    verbose: bool
    config_dir: str | None


def play_run(request: RunRequest, manner: Manner) -> int:
    """Runs the request; returns the exit code.

    Raises:
        CallboardError: the run could not start (usage, invalid file, configuration).
        BrokenPipeError: the reader of stdout has gone.
    """
    logging.configure()  # what a target is read with may log
    result = for_format(manner.output, sys.stdout)
    person = person_at_terminal(no_input=manner.no_input)
    shared = manner.output == "stream-json" and sys.stdout.isatty()
    progress = choose(sys.stderr, quiet=manner.quiet, verbose=manner.verbose, prompting=person, shared=shared)
    driver = partial(_drive, _completed(request, manner, person), manner, progress, result, person)
    outcome = play(driver, progress, config_dir=manner.config_dir, person=person, dry_run=manner.dry_run)
    _keep(outcome)
    result.finish(outcome)
    _tell_failure(outcome)
    if outcome.unsaved is not None:
        sys.stderr.write(f"callboard: {safe(outcome.unsaved)}\n")
    return outcome.exit_code


def _completed(request: RunRequest, manner: Manner, person: bool) -> RunRequest:
    """The request with what standard input and the person at the terminal give."""
    if manner.reads_stdin:
        request = msgspec.structs.replace(request, prompt=prompt_text(request.prompt, quiet=manner.quiet))
    if manner.adhoc is not None:
        if not request.prompt.strip() and not request.files:
            raise UsageError('there is nothing to ask: give a PROMPT (callboard ask "..."), or pipe text in')
    elif person:
        from .variables import asked_for

        return asked_for(request, manner.config_dir)
    return request


def _page_beside(root: Root) -> AbstractAsyncContextManager[Served]:
    from .serving import serve_beside

    return serve_beside(root)


def _present(event: Event) -> AbstractContextManager[None]:
    """The run that begins with this event is seen by `callboard ps` of this user."""
    from ..actors.front.control.presence import Present, present

    assert isinstance(event.data, RunStarted)
    data = event.data
    started = event.ts.isoformat()
    run = Present(run=event.run, target=data.target, name=data.name, started=started, pid=os.getpid())
    return present(run, os.environ)


async def _drive(
    request: RunRequest, manner: Manner, progress: Progress, result: Result, person: bool, root: Root
) -> Outcome:
    def on_event(event: Event) -> None:
        progress.on_event(event)
        if isinstance(event.data, RunStarted):
            told_already()  # by the run's own warnings, which come next
            here.enter_context(_present(event))
            if beside is not None:
                from .serving import tell_page

                tell_page(beside, event.run, progress.note, quiet=manner.quiet)
            if event.data.why:
                progress.note(f"model: {event.data.model} ({event.data.why})")
        result.on_event(event)

    result.when_gone(from_any_thread(root.begin_stop))
    beside: Served | None = None
    with ExitStack() as here:
        try:
            async with _page_beside(root) if manner.ui else nullcontext() as beside:
                if manner.adhoc is not None:
                    request = msgspec.structs.replace(request, target=manner.adhoc.agent(root))
                wish = Wish(manner.session, save=manner.save_session, person=person, note=progress.note)
                return await run_in_session(root, request, Hooks(on_event=on_event), wish)
        except ShuttingDown:  # a signal came before the run began
            signal = root.kernel.signal
            return Outcome(run_id="", status="cancelled", exit_code=INTERRUPTED if signal is None else 128 + signal)
    raise AssertionError("unreachable: nothing swallows errors")


def _keep(outcome: Outcome) -> None:
    """For `-f %%`. A disk that takes no more, or a home that can't be written to, is no reason to fail."""
    if outcome.status == "done" and outcome.output:
        with suppress(OSError):
            keep_reply(outcome.output, os.environ)


def _tell_failure(outcome: Outcome) -> None:
    if outcome.status != "failed" or outcome.error is None:
        return
    sys.stderr.write(f"callboard: {safe(with_node(outcome.error.message, outcome.error.node))}\n")
    if outcome.error.code == NobodyToAsk.code:
        sys.stderr.write("    answer it at a terminal (without --no-input), or beforehand with --answer or --answers\n")
