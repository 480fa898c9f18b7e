"""Hooks of one run: selects those for an event, runs them and merges their answers.

Hooks of the user come first, then hooks of the workspace, then functions of the calling program. All matching hooks run
concurrently, each in its own actor, and their answers are merged in that order. A hook that hangs, crashes or answers
invalid data affects only itself: the user is notified, and the call continues, unless the hook is marked `on_error:
deny`.

The input has Claude Code's format, with its names of tools and parameters (`protocol.others_names`).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import trio
from msgspec.structs import replace

from ....protocol.errors import CallboardError
from ....protocol.events import Warned
from ....protocol.hooks import Event, Hook, HookTable, matches
from ....protocol.others_names import ours, split_pattern
from ....supervisors.event_loops import caller
from ....supervisors.process import run_process
from ....supervisors.ref import crash_text
from ....supervisors.user_code import failure_of
from ..playback.playback import OutsideEffect, done
from ..sandbox.current import sandboxed
from .answers import REFUSES, HookAnswers, of_command, of_json, together

if TYPE_CHECKING:
    from ....protocol.permissions import Verdict
    from ....supervisors import Actor
    from ..sandbox.held import HeldProcess
    from ..tools.tool import Arguments, Json, Tool

Input: TypeAlias = dict[str, Any]
Function: TypeAlias = Callable[[Input], "Mapping[str, Any] | Awaitable[Mapping[str, Any] | None] | None"]
Functions: TypeAlias = Mapping[str, Sequence["Function | tuple[str, Function]"]]
"""Functions by event. Each receives a command's input and returns a command's JSON answer; a tuple adds a matcher."""

OUTPUT = 1_000_000
"""Maximum bytes that a hook may print."""

NAME = "hook"
"""Name of hook processes in the sandbox's rules."""

log = logging.getLogger("callboard.hooks")


class Hooks:
    """All hooks of one run.

    Args:
        tables: hooks of files, in their order.
        functions: hooks of the calling program.
        root: the workspace.
        here: the run's directory.
        environ: the environment of commands.
        run: the run's id.
        yes: no call asks for permission.
        goes_on: the conversation continues after the run.

    Attributes:
        here: the `here` argument.
    """

    def __init__(
        self,
        tables: Sequence[HookTable],
        functions: Functions,
        *,
        root: Path,
        here: Path,
        environ: Mapping[str, str],
        run: str,
        yes: bool = False,
        goes_on: bool = False,
    ) -> None:
        self._tables = tables
        self._functions = functions
        self._root = root
        self.here = here
        self._environ = environ
        self._run = run
        self._yes = yes
        self.goes_on = goes_on

    async def before(self, me: Actor, tool: Tool, arguments: Arguments, id: str) -> tuple[Arguments, Verdict | None]:
        """Run the hooks before a call; see `tools.calls.CallHooks`."""
        if not self.has("PreToolUse"):
            return arguments, None
        from .calls import before

        changed, said = await before(self, me, tool, arguments, id)
        return changed, said.verdict or None

    async def after(self, me: Actor, tool: Tool, arguments: Arguments, value: Json, id: str) -> str:
        """Run the hooks after a call; see `tools.calls.CallHooks`."""
        if not self.has("PostToolUse"):
            return ""
        from .calls import after

        return await after(self, me, tool, arguments, value, id)

    async def notify(self, me: Actor, question: Mapping[str, Any]) -> None:
        """Run the hooks for a question to a person. Body of an actor of its own: no caller waits for these hooks."""
        kind = "permission_prompt" if question.get("permission") else "elicitation_dialog"
        given = {"message": str(question.get("text", "")), "title": "Callboard", "notification_type": kind}
        await self.ask(me, "Notification", kind, given)

    def has(self, event: Event) -> bool:
        """Return True if there is a hook for the event."""
        return any(event in table for table in self._tables) or event in self._functions

    async def ask(self, me: Actor, event: Event, matched: str, given: Input, call: str = "") -> HookAnswers:
        """Run all matching hooks and return their merged answer.

        Args:
            matched: the value that matchers are compared with: a tool's name (Claude Code's), a source, a trigger.
            given: the input of this event, in addition to the common input.
            call: the text that a hook's `if` is compared with: a command, a path.
        """
        commands = [
            hook
            for table in self._tables
            for hook in table.get(event, ())
            if matches(hook.matcher, matched) and _applies(hook, matched, call)
        ]
        functions = [each for each in self._functions.get(event, ()) if not isinstance(each, tuple)]
        functions += [
            each[1] for each in self._functions.get(event, ()) if isinstance(each, tuple) and matches(each[0], matched)
        ]
        if not commands and not functions:
            return HookAnswers()
        told = {
            "session_id": self._run,
            "transcript_path": "",
            "cwd": str(self.here),
            "permission_mode": "bypassPermissions" if self._yes else "default",
            "hook_event_name": event,
            **given,
        }
        ask = partial(self._all, me, event, commands, functions, told)
        # The call's id differs in each run, so the request that a replay looks up omits it.
        request = {key: value for key, value in given.items() if key != "tool_use_id"}
        # A replay takes the answers from its record and runs no hook.
        said = await done(me, OutsideEffect("hook", event, request), HookAnswers, ask)
        for note in said.notes:
            me.emit(Warned(code="hook", message=note))
        return said

    async def _all(
        self, me: Actor, event: Event, commands: Sequence[Hook], functions: Sequence[Function], told: Input
    ) -> HookAnswers:
        answers: list[HookAnswers] = [HookAnswers()] * (len(commands) + len(functions))

        async def command(own: Actor, place: int, hook: Hook) -> None:
            # Stored by place, so that the merge order does not depend on which hook ends first.
            answers[place] = await self._command(own, event, hook, told)

        async def function(own: Actor, place: int, call: Function) -> None:
            answers[place] = await _function(own, event, call, told)

        refs = [
            # `link=False`: a hook that crashes must not fail the call.
            me.spawn(command, place, hook, name=f"{NAME}-{place}", link=False)
            for place, hook in enumerate(commands)
        ]
        refs += [
            me.spawn(function, place, call, name=f"{NAME}-{place}", link=False)
            for place, call in enumerate(functions, len(commands))
        ]
        for ref in refs:
            await ref.wait()
        return together(answers)

    def _argv(self, hook: Hook) -> list[str]:
        if hook.args is None:
            return ["/bin/sh", "-c", hook.command]
        root = str(self._root)
        return [text.replace("${CLAUDE_PROJECT_DIR}", root) for text in (hook.command, *hook.args)]

    async def _command(self, me: Actor, event: Event, hook: Hook, told: Input) -> HookAnswers:
        root = str(self._root)
        env = {**self._environ, "CLAUDE_PROJECT_DIR": root, "CALLBOARD_PROJECT_DIR": root}
        held = None
        try:
            held = await sandboxed(me, NAME)
            ran = await run_process(
                me,
                self._argv(hook),
                name="process",
                input=msgspec.json.encode(told),
                env=env,
                cwd=self.here,
                output_limit=OUTPUT,
                timeout=hook.timeout,
                confinement=held,
            )
            printed = ran.stdout.decode("utf-8", "replace")
            # Exit status 2 of the package runner itself must not pass for a refusal by the hook.
            if ran.status == REFUSES and held is not None and await self._never_began(hook, held, ran.stderr_tail):
                raise ValueError(f"its package runner failed: {ran.stderr_tail.strip()[-400:]}")
            said = of_command(event, ran.status, printed, ran.stderr_tail, hook.command[:80])
        except (CallboardError, ValueError) as error:
            return _lost(hook.command[:80], hook.on_error, f"{error}{_kept_from(held)}", hook.file)
        return said if said.refused is None else replace(said, refused=f"{said.refused}{_kept_from(held)}")

    async def _never_began(self, hook: Hook, held: HeldProcess, stderr: str) -> bool:
        """Return True if exit status 2 came from a package runner that the sandbox denied a host.

        uv exits with 2 when a download fails, but for a hook that status is a refusal. The runner's output must name
        the host: the sandbox may have denied a host to the hook's own program too, and then its refusal is valid.
        """
        if not any(host in stderr for host in held.refused_hosts):
            return False
        from ..mcp.client.downloads import names_runner

        root = str(self._root)
        line = " ".join((hook.command, *(hook.args or ())))
        line = line.replace("${CLAUDE_PROJECT_DIR}", root).replace("$CLAUDE_PROJECT_DIR", root)
        return await trio.to_thread.run_sync(names_runner, line, self.here)


async def _function(me: Actor, event: Event, call: Function, told: Input) -> HookAnswers:
    name = getattr(call, "__name__", "function")

    async def called() -> Mapping[str, Any] | None:
        value = call(dict(told))
        return await value if inspect.isawaitable(value) else value

    try:
        host = caller.get()
        value = await called() if host is None else await host.run(called, me.cleanup)
        return HookAnswers() if value is None else of_json(event, value)
    except BaseException as raised:  # A user function may raise anything; its failure is reported.
        error = failure_of(raised)
        log.error("hook '%s' raised an exception", name, exc_info=error)
        return _lost(name, "allow", crash_text(error), "")


def _kept_from(held: HeldProcess | None) -> str:
    """Return a note with the hosts that the sandbox refused to a hook, and how to allow them; "" for none."""
    hosts = () if held is None else tuple(held.refused_hosts)
    if not hosts:
        return ""
    allowed = " ".join(f"--allow host:{host}" for host in hosts)
    return f" [the sandbox did not let the hook reach {' and '.join(hosts)}; to allow that: {allowed}]"


def _lost(hook: str, on_error: str, why: str, file: str) -> HookAnswers:
    where = f" ({file})" if file else ""
    note = f"hook `{hook}`{where}: {why}"
    if on_error == "deny":
        return HookAnswers(refused=f"a hook that has to be asked could not be: {why}", notes=(note,))
    return HookAnswers(notes=(note,))


def _applies(hook: Hook, matched: str, call: str) -> bool:
    """Return True if a hook's `if` fits a call, or one command of it, or a line that is not understood."""
    if not hook.condition:
        return True
    from fnmatch import fnmatchcase

    from ..tools.shell_commands import ShellLine, parse

    name, pattern = split_pattern(hook.condition)
    same = name == matched or bool(set(ours(name)) & set(ours(matched)))
    if not same or not pattern:
        # A condition without a pattern applies to every call of the tool.
        return same
    line = parse(call) if "execute_command" in ours(matched) else ShellLine()
    texts = [call, *(text for each in line.commands for part in each.all() for text in part.texts)]
    # A hook is a guard: a line that is not understood may contain the command, so the hook runs.
    return bool(line.unclear) or any(fnmatchcase(text, pattern) for text in texts)
