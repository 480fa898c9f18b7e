"""Single run for `callboard run` and `ask`, from parsed flags to the exit code.

The request is built from the flags, `..frame` opens the root, and three consumers follow the same stream of events:
progress on stderr, questions at the terminal, and the result on stdout. None of them can block the run. A run may be a
turn of a session.

`run_on_cluster` (`--on`) sends the request to a server instead, and follows the run as `callboard attach` does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
import trio

from ...actors.io.lines import from_any_thread
from ...actors.io.saved_replies import store_reply
from ...actors.runs.begin import perform
from ...actors.runs.execution import INTERRUPTED
from ...actors.runs.file_checks import KnownServers
from ...actors.runs.loading import RunCallbacks, durable_by, session_of_agent
from ...actors.runs.rerun.cassettes import playback_of, prompt_of
from ...actors.runs.root import Root
from ...actors.runs.sessions.names import TEMP
from ...protocol.agent import Agent
from ...protocol.chat import Turn
from ...protocol.errors import CallboardError, ConfigError, NobodyToAsk, ShuttingDown, UsageError
from ...protocol.events import Event, RunStarted
from ...protocol.kernel.questions import Question
from ...protocol.mcp.config import WHOLE, spelled_out, split
from ...protocol.outcome import Outcome
from ...protocol.requests import RunRequest
from ...protocol.settings import Settings
from ...protocol.settings.model import Prelude, prelude_of
from .. import logging
from ..failure import complain
from ..frame import choose_display, keeping, person_at_terminal, play
from ..render.answer import AnswerDisplay, AnswerResult, style_of
from ..render.progress import ProgressDisplay
from ..render.result import ResultFormat, for_format
from ..render.text import with_node
from ..settings_warnings import already_printed
from ..stdin import prompt_text, with_standard_input

if TYPE_CHECKING:
    from ...actors.front.server.serving import HttpServer, ListeningServer
    from ...actors.work.models.recorder import Recorder
    from ...actors.work.playback import Playback
    from ...protocol.control.resources import RunInfo
    from ...protocol.requests import RunRequest
    from ..control.client import ControlClient


class AdHoc(msgspec.Struct, frozen=True, kw_only=True):
    """Agent without a directory, as run by `callboard ask`.

    Attributes:
        instructions: system prompt.
        tools: names of its tools, and `mcp:<server>` for all tools of a server; empty for the settings' tools.
        role, prompt: role of the answer, by name, or by its text.
    """

    instructions: str
    tools: tuple[str, ...]
    role: str | None = None
    prompt: str | None = None

    def request(self, request: RunRequest, root: Root) -> RunRequest:
        """Return the request with the agent as its target. Raises as `agent` does."""
        return msgspec.structs.replace(
            request,
            target=self.agent(root),
            role=self.role,
            role_prompt=self.prompt,
            default_tools=not self.tools,
            workspace=True,
        )

    def agent(self, root: Root) -> Agent:
        """Return the agent.

        Raises:
            UsageError: there is no tool, or no server, of that name.
            ConfigError: it names a server, but MCP is turned off.
        """
        if self.tools:
            tools = [name for name in self.tools if not name.startswith(WHOLE)]
            servers = [name.removeprefix(WHOLE) for name in self.tools if name.startswith(WHOLE)]
            known = KnownServers(root.config_dir, root.settings)
            _check(servers, known, root.settings)
        else:
            tools = split(root.settings.enabled_tools)
            servers = _enabled(root) if root.settings.mcp_server_support else []
        for name, hint in root.registry.unknown(tools if self.tools else ()):
            server = KnownServers(root.config_dir, root.settings).behind(name)
            if server is not None:
                hint = f"for all tools of MCP server '{server}': --tool {WHOLE}{server}"
            raise UsageError(f"there is no tool '{name}'; {hint}")
        return Agent(
            name="ask",
            instructions=self.instructions,
            global_tools=tuple(tools),
            mcp_servers=tuple(servers),
            can_ask_user=False,
        )


def _check(servers: list[str], known: KnownServers, settings: Settings) -> None:
    if "" in servers:
        raise UsageError(f"--tool {WHOLE} names no MCP server: --tool {WHOLE}NAME (callboard mcp list)")
    if servers and not settings.mcp_server_support:
        raise ConfigError(
            f"--tool {WHOLE}{servers[0]}: MCP is turned off; set `mcp_server_support: true` in {settings.file}"
        )
    for name in known.spelled_out(servers):
        hint = known.missing(name)
        if hint is not None and not known.cut_short:  # otherwise the run reports the errors of the file
            raise UsageError(f"there is no MCP server '{name}'; {hint}")


def _enabled(root: Root) -> list[str]:
    names = split(root.settings.enabled_mcp_servers)
    for name in names:
        for server in spelled_out([name], root.settings.mapping_mcp_servers, root.mcp.config.names):
            if server not in root.mcp.config.servers:
                try:
                    root.mcp.config.get(server)
                except UsageError as error:
                    raise UsageError(f"`enabled_mcp_servers` of {_origin(root)}: {error}") from None
    return names


def _origin(root: Root) -> str:
    name = "CALLBOARD_ENABLED_MCP_SERVERS"
    return f"the environment ({name})" if os.environ.get(name) else root.settings.file


class RunFlags(msgspec.Struct, frozen=True, kw_only=True):
    """Flags of `callboard run` and `callboard ask` that are not part of the run request, as click parsed them.

    `reads_stdin` is False for a command with a complete prompt, which must not read standard input. `adhoc` replaces
    the target. `preludes` allows the settings to name a session and a role. `saves` applies the setting `save`, which
    stores prompt and answer in the file of messages.
    """

    adhoc: AdHoc | None = None
    reads_stdin: bool = True
    no_input: bool
    output: str
    dry_run: bool = False
    no_stream: bool = False
    keep_requests: bool | None = None
    durable: bool | None = None
    record: str | None = None
    replay: str | None = None
    loose: bool = False
    session: str | None = None
    save_session: bool | None = None
    preludes: bool = True
    saves: bool = False
    ui: bool = False
    quiet: bool
    verbose: bool
    config_dir: str | None


def execute_run(request: RunRequest, flags: RunFlags, result: ResultFormat | None = None) -> int:
    """Execute the request, print its result, and return the exit code of its outcome.

    Args:
        result: receives the outcome instead of the format of the flags; then nothing is drawn on stdout.

    Raises:
        CallboardError: the run could not start (usage, invalid file, configuration).
        BrokenPipeError: the reader of stdout has closed the pipe.
    """
    logging.configure()  # loading a target may already log
    # A cassette contains the recorded answers, so a replay asks no user.
    person = person_at_terminal(no_input=flags.no_input or flags.replay is not None)
    tape = playback_of(flags.record, flags.replay, loose=flags.loose, durable=bool(flags.durable))
    # Events go to the same terminal, where a redrawn tree would erase them.
    shared = flags.output == "stream-json" and sys.stdout.isatty()
    progress = choose_display(sys.stderr, quiet=flags.quiet, verbose=flags.verbose, prompting=person, shared=shared)
    if result is None and flags.output == "text" and sys.stdout.isatty() and not flags.dry_run:
        progress = answer = AnswerDisplay(progress, sys.stdout, streams=not flags.no_stream)
        result = AnswerResult(sys.stdout, answer)
    elif result is None:
        result = for_format(flags.output, sys.stdout)
    # Completed before the event loop runs: reading standard input and asking at the terminal block.
    driver = partial(_drive, _completed(request, flags, person), flags, progress, result, person, tape)
    outcome = play(driver, progress, config_dir=flags.config_dir, person=person, dry_run=flags.dry_run)
    return finish(outcome, result)


def finish(outcome: Outcome, result: ResultFormat) -> int:
    """Store the reply for `-f %%`, write the result, and messages about it to stderr; return the exit code.

    Raises:
        OSError: the result can't be written.
    """
    # Before the result is written: that raises if the reader of stdout has gone, and the reply is complete.
    _keep(outcome)
    result.finish(outcome)
    _print_failure(outcome)
    if outcome.save_error is not None:
        complain(outcome.save_error)
    if outcome.resumable:
        complain(f"to continue this run: callboard resume {outcome.run_id}")
    return outcome.exit_code


def _completed(request: RunRequest, flags: RunFlags, person: bool) -> RunRequest:
    # Standard input is not read: the cassette has the recorded prompt.
    if flags.replay is not None and not request.prompt:
        return msgspec.structs.replace(request, prompt=prompt_of(flags.replay))
    if flags.reads_stdin:
        request = with_standard_input(request, quiet=flags.quiet)
    if flags.adhoc is not None:
        if not request.prompt.strip() and not request.files and not request.attach:
            raise UsageError('the prompt is missing: give a PROMPT (callboard ask "..."), or pipe text in')
    elif person:
        from .missing_inputs import asked_for

        return asked_for(request, flags.config_dir, flags.session)
    elif not request.prompt:
        from .missing_inputs import check_prompt

        check_prompt(request, flags.config_dir)
    return request


def seen_by_ps(event: Event) -> AbstractContextManager[None]:
    """Return a block during which `callboard ps` of this user lists the run that begins with this event."""
    from ...actors.front.control.liveness import Present, present

    assert isinstance(event.data, RunStarted)
    data = event.data
    started = event.ts.isoformat()
    run = Present(run=event.run, target=data.target, name=data.name, started=started, pid=os.getpid())
    return present(run, os.environ)


async def _drive(
    request: RunRequest,
    flags: RunFlags,
    progress: ProgressDisplay,
    result: ResultFormat,
    person: bool,
    tape: Playback | None,
    root: Root,
) -> Outcome:
    def on_event(event: Event) -> None:
        progress.on_event(event)
        if isinstance(event.data, RunStarted):
            already_printed()  # the run's own warnings, which come next, contain them
            here.enter_context(seen_by_ps(event))
            if beside is not None:
                print_page(beside[0], event.run, progress.note, quiet=flags.quiet)
            if event.data.why:
                progress.note(f"model: {event.data.model} ({event.data.why})")
        result.on_event(event)

    def hooks(recorder: Callable[[str], Recorder] | None) -> RunCallbacks:
        return RunCallbacks(
            on_event=on_event,
            recorder=recorder,
            # `playback_of` refuses --durable with --replay; `durable.by_default` must not apply either.
            durable=False if flags.replay is not None else durable_by(flags.durable, root.settings),
            by="run" if flags.adhoc is None else "ask",
            playback=tape,
        )

    if isinstance(progress, AnswerDisplay):
        progress.begin(style_of(root.settings.other, Path(root.config_dir), sys.stdout, os.environ))
    # The thread that writes lines of events calls it, and `begin_stop` belongs to trio's thread.
    result.on_write_error(from_any_thread(root.begin_stop))
    beside: tuple[ListeningServer, HttpServer] | None = None
    if flags.ui:
        from .serve import print_page, serve_in_background
    with ExitStack() as here:
        try:
            async with (
                serve_in_background(root, by="run", durable=flags.durable) if flags.ui else nullcontext() as beside
            ):
                if flags.adhoc is not None:
                    request = flags.adhoc.request(request, root)
                choice = SessionChoice(
                    flags.session,
                    save=flags.save_session,
                    person=person,
                    note=progress.note,
                    preludes=flags.preludes,
                    saves=flags.saves,
                )
                # With --ui the server's hub stores the events of the run.
                async with keeping(root, _keeps(root, flags), progress.note, logged=not flags.ui) as recorder:
                    return await run_in_session(root, request, hooks(recorder), choice)
        except ShuttingDown:  # a signal came before the run began
            signal = root.kernel.signal
            return Outcome(run_id="", status="cancelled", exit_code=INTERRUPTED if signal is None else 128 + signal)
    raise AssertionError("unreachable: nothing swallows errors")


def _keeps(root: Root, flags: RunFlags) -> bool:
    """Return True if requests and replies of the run's models are to be stored."""
    wanted = root.settings.keep_requests if flags.keep_requests is None else flags.keep_requests
    return not flags.dry_run and (sys.stderr.isatty() if wanted is None else wanted)


def _keep(outcome: Outcome) -> None:
    """Store the reply for `-f %%`. A full disk or a read-only home is no reason to fail."""
    if outcome.status == "done" and outcome.output:
        with suppress(OSError):
            store_reply(outcome.output, os.environ)


def _print_failure(outcome: Outcome) -> None:
    if outcome.status != "failed" or outcome.error is None:
        return
    complain(with_node(outcome.error.message, outcome.error.node))
    if outcome.error.code == NobodyToAsk.code:
        sys.stderr.write("    answer it at a terminal (without --no-input), or prepare it with --answer or --answers\n")


WAIT = 30.0
"""Seconds to wait for another process that uses the session."""


class SessionChoice(msgspec.Struct, frozen=True):
    """Session options of the user.

    Attributes:
        name: name or id of the session; None for that of the agent's file or the settings.
        save: True if it is stored; None for the choice of the session and the settings.
        person: True if the terminal can ask its user.
        note: prints a message for the user.
        preludes: True if the agent's file or the settings may name the session, and the role.
        saves: True if `save: true` of config.yaml appends prompt and answer of a run outside of sessions to the file of
            messages.
    """

    name: str | None
    save: bool | None
    person: bool
    note: Callable[[str], None]
    preludes: bool = True
    saves: bool = False


async def run_in_session(root: Root, request: RunRequest, hooks: RunCallbacks, choice: SessionChoice) -> Outcome:
    """Run the request and return its outcome; in a session if the user, the agent's file or the settings name one."""
    begins = await _begins_with(root, request, choice)
    name = begins.session
    if name is None or name == TEMP:
        if not request.in_role:
            request = msgspec.structs.replace(request, role=begins.role)
        if name is None:
            if hooks.by == "ask" and hooks.durable is None:  # a question is cheap to ask again
                hooks = msgspec.structs.replace(hooks, durable=False)
            outcome = await perform(request, hooks, root)
            if choice.saves:
                await _save_message(root, request, outcome, choice.note)
            return outcome
    from ...actors.runs.session_run import agent_of, say

    agent: str | None = None
    if isinstance(request.target, str):
        loaded = await root.loader.load(request, hooks)
        # `loaded` is passed on, so that the files are not read a second time.
        agent, hooks = agent_of(loaded), msgspec.structs.replace(hooks, loaded=loaded)
    if name == TEMP:
        return await _temporary(root, request, hooks, choice, agent)
    return await say(
        root,
        None,
        name,
        request,
        hooks,
        agent=agent,
        keep=choice.save,
        new_role=begins.role,
        compress=False,  # as in Loki: it would delay the answer; `callboard sessions compress` does it
        wait=WAIT,
        on_wait=lambda busy: choice.note(f"waiting: {busy}"),
    )


async def _save_message(root: Root, request: RunRequest, outcome: Outcome, note: Callable[[str], None]) -> None:
    """Store prompt and answer in the file of messages if the setting `save` is true, as the chat does."""
    said = root.settings.other.get("save") is True and not root.settings.dry_run
    if not said or outcome.status != "done" or not outcome.output:
        return
    from ...actors.io.saved_replies import add_message

    agent = request.target if isinstance(request.target, str) else ""
    title = agent or request.role or request.model or root.gateway.choice().model
    try:
        await trio.to_thread.run_sync(add_message, root.config_dir, title, request.prompt, outcome.output)
    except OSError as error:
        note(f"the answer could not be stored in the file of messages (setting `save`): {error}")


async def _begins_with(root: Root, request: RunRequest, choice: SessionChoice) -> Prelude:
    """Return the session that the user names; otherwise session and role of the agent's file or the settings.

    As in Loki, `cmd_prelude` applies if neither a role nor a session is named.
    """
    if choice.name is not None:
        return Prelude(session=choice.name)
    if not choice.preludes:
        return Prelude()
    if isinstance(request.target, str):
        return Prelude(session=await session_of_agent(root.loader, root.settings, request))
    return Prelude() if request.in_role else prelude_of(root.settings, "cmd_prelude")


async def _temporary(
    root: Root, request: RunRequest, hooks: RunCallbacks, choice: SessionChoice, agent: str | None
) -> Outcome:
    """Run in a new session without history, which is stored only if the user agrees; a model then names it."""
    said: list[Turn] = []

    def keep(turns: Sequence[Turn]) -> None:
        said[:] = turns

    outcome = await perform(request, msgspec.structs.replace(hooks, on_history=keep), root)
    save = choice.save if choice.save is not None else root.settings.other.get("save_session")
    if said and save is None and choice.person:
        save = await _asked(root)
    if said and save:
        from ...actors.runs.session_run import keep_temporary

        try:
            role, prompt = request.role, request.role_prompt
            stored = await keep_temporary(root, said, agent=agent, model=request.model, role=role, role_prompt=prompt)
        except CallboardError as error:
            choice.note(f"the session could not be stored: {error}")
        else:
            choice.note(f"session: {stored.label}")
    return outcome


async def _asked(root: Root) -> bool:
    top = root.kernel.actor
    question = Question(
        id=f"keep-{uuid4().hex[:8]}", actor=top.path, text="Keep this session?", kind="confirm", default="no"
    )
    try:
        return (await top.ask_person(question)).text == "yes"
    except CallboardError:
        return False  # there is no terminal


_HERE = ("ui", "dry_run", "keep_requests", "record", "replay", "loose")
"""Flags that concern this machine and not the run."""

_EITHER = {"save_session": ("--save-session", "--no-save-session"), "durable": ("--durable", "--ephemeral")}
"""Flags of this machine with a positive and a negative form."""


def run_on_cluster(request: RunRequest, on: str, needs: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Start the run on a server and follow it as `callboard attach` does; return the exit code of the run.

    Args:
        on: the URL of a server, or `cluster` for $CALLBOARD_URL, else the newest server of this machine.
        needs: labels that a worker must have.
        flags: of `callboard run`, without those of the request.

    Raises:
        UsageError: a flag is about this machine.
        CallboardError: there is no such server, or the run could not start.
    """
    # Deferred: the client of a server, which runs of this process do not need.
    from ...protocol.control import method_structs
    from ..control.client import with_client
    from ..control.commands.following import attach
    from ..control.servers import Where

    logging.configure()
    _check_flags(flags)
    request = msgspec.structs.replace(request, prompt=prompt_text(request.prompt, quiet=flags["quiet"]))
    # A server on this machine works in another directory. The name of an agent stays a name.
    if isinstance(request.target, str) and os.path.exists(request.target):  # noqa: PTH110 - no event loop runs yet
        request = msgspec.structs.replace(request, target=os.path.abspath(request.target))  # noqa: PTH100 - the same
    # `session` and `needs` are sent apart, from the flags; the command line has no title.
    travels = {name for name in method_structs.StartRun.__struct_fields__ if name not in ("session", "title", "needs")}
    given = {name: getattr(request, name) for name in travels if hasattr(request, name)}
    given |= {name: getattr(request.limits, name) for name in request.limits.__struct_fields__}
    _check_fields(request, set(given))
    # 0 is left out too, since it equals False; limits are above 0 (`options.above_zero`).
    params = {name: value for name, value in given.items() if value not in (None, "", (), {}, [], False)}
    if flags.get("session") is not None:
        params["session"] = "" if flags["session"] == TEMP else flags["session"]
    where = Where(url=None if on == "cluster" else on, token=None)
    if on == "cluster" and os.environ.get("CALLBOARD_URL"):
        where = Where(url=os.environ["CALLBOARD_URL"], token=None)

    async def start(client: ControlClient) -> RunInfo:
        return (await client.ask("_run/start", method_structs.OneRun, **params, needs=list(needs))).run

    info = with_client(where, start)
    return attach(
        run=info.run,
        no_input=flags["no_input"],
        output=flags["output"],
        quiet=flags["quiet"],
        verbose=flags["verbose"],
        url=where.url,
        token=None,
    )


def _check_flags(flags: Mapping[str, Any]) -> None:
    given = [f"--{name.replace('_', '-')}" for name in _HERE if flags.get(name)]
    given += [yes if flags[name] else no for name, (yes, no) in _EITHER.items() if flags.get(name) is not None]
    if given:
        raise UsageError(
            f"{given[0]} works only for runs of this machine, and --on executes the run on a server:"
            " leave out one of the two"
        )


def _check_fields(request: RunRequest, travels: set[str]) -> None:
    """Raise `UsageError` for request fields that can't be sent to a server."""
    for field in msgspec.structs.fields(type(request)):
        if field.name in travels or field.name in ("limits", "id", "target"):
            continue
        usual = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        if getattr(request, field.name) != usual:
            flag = field.name.replace("_", "-")
            raise UsageError(f"--{flag} can't be sent to a server: leave it out, or set it in the agent's file")
