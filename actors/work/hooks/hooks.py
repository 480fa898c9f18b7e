"""The hooks of one run: who is asked at an event, and with what.

Those of the user come first, then those of the workspace, then functions of the program that runs us. All that match
are asked at once, each as an actor of its own, and what they say is put together in that order. A hook that hangs,
crashes or answers nonsense costs itself: the user is told, and the call goes on, unless it is marked `on_error: deny`.

What they are told is what Claude Code tells: names of tools and parameters are its own (`protocol.others_names`).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from ....protocol.errors import CallboardError
from ....protocol.events import Warned
from ....protocol.hooks import Event, Hook, HookTable, matches
from ....protocol.others_names import ours, split_pattern
from ....supervisors.event_loops import caller
from ....supervisors.process import run_process
from ....supervisors.user_code import failure_of
from ..playback.playback import Effect, done
from ..sandbox.current import sandboxed
from .answers import Said, of_command, of_json, together

if TYPE_CHECKING:
    from ....protocol.permissions import Verdict
    from ....supervisors import Actor
    from ..tools.tool import Arguments, Json, Tool

Input: TypeAlias = dict[str, Any]
Function: TypeAlias = Callable[[Input], "Mapping[str, Any] | Awaitable[Mapping[str, Any] | None] | None"]
Functions: TypeAlias = Mapping[str, Sequence["Function | tuple[str, Function]"]]
"""By event: functions that get what a command gets, and return what it may print; with a matcher before one or not."""

OUTPUT = 1_000_000
"""Bytes that a hook may print."""

NAME = "hook"
"""What a sandbox's rules call the processes of hooks."""


class Hooks:
    """See the module.

    Args:
        tables: hooks of files, in their order.
        functions: those of the program.
        root: the workspace.
        here: the run's directory.
        environ: what commands inherit.
        run: the run's id.
        yes: nothing is asked for permission.
        goes_on: the conversation goes on after the run.

    Attributes:
        here: as given.
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
        """See `tools.calls.Asked`."""
        if not self.has("PreToolUse"):
            return arguments, None
        from .calls import before

        changed, said = await before(self, me, tool, arguments, id)
        return changed, said.verdict or None

    async def after(self, me: Actor, tool: Tool, arguments: Arguments, value: Json, id: str) -> str:
        """See `tools.calls.Asked`."""
        if not self.has("PostToolUse"):
            return ""
        from .calls import after

        return await after(self, me, tool, arguments, value, id)

    async def notify(self, me: Actor, question: Mapping[str, Any]) -> None:
        """A person is needed. Body of an actor of its own: nobody waits for what these hooks do."""
        kind = "permission_prompt" if question.get("permission") else "elicitation_dialog"
        given = {"message": str(question.get("text", "")), "title": "Callboard", "notification_type": kind}
        await self.ask(me, "Notification", kind, given)

    def has(self, event: Event) -> bool:
        """Whether there is one for an event."""
        return any(event in table for table in self._tables) or event in self._functions

    async def ask(self, me: Actor, event: Event, matched: str, given: Input, call: str = "") -> Said:
        """What all hooks say that are for this.

        Args:
            matched: what matchers are compared with: a tool's name (theirs), a source, a trigger.
            given: what is told beside what all events tell.
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
            return Said()
        told = {
            "session_id": self._run,
            "transcript_path": "",
            "cwd": str(self.here),
            "permission_mode": "bypassPermissions" if self._yes else "default",
            "hook_event_name": event,
            **given,
        }
        ask = partial(self._all, me, event, commands, functions, told)
        request = {key: value for key, value in given.items() if key != "tool_use_id"}
        said = await done(me, Effect("hook", event, request), Said, ask)
        for note in said.notes:
            me.emit(Warned(code="hook", message=note))
        return said

    async def _all(
        self, me: Actor, event: Event, commands: Sequence[Hook], functions: Sequence[Function], told: Input
    ) -> Said:
        answers: list[Said] = [Said()] * (len(commands) + len(functions))

        async def command(own: Actor, place: int, hook: Hook) -> None:
            answers[place] = await self._command(own, event, hook, told)

        async def function(own: Actor, place: int, call: Function) -> None:
            answers[place] = await _function(own, event, call, told)

        refs = [
            me.spawn(command, place, hook, name=f"{NAME}-{place}", link=False) for place, hook in enumerate(commands)
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

    async def _command(self, me: Actor, event: Event, hook: Hook, told: Input) -> Said:
        root = str(self._root)
        env = {**self._environ, "CLAUDE_PROJECT_DIR": root, "CALLBOARD_PROJECT_DIR": root}
        try:
            ran = await run_process(
                me,
                self._argv(hook),
                name="process",
                input=msgspec.json.encode(told),
                env=env,
                cwd=self.here,
                output_limit=OUTPUT,
                timeout=hook.timeout,
                confinement=await sandboxed(me, NAME),
            )
            printed = ran.stdout.decode("utf-8", "replace")
            return of_command(event, ran.status, printed, ran.stderr_tail, hook.command[:80])
        except (CallboardError, ValueError) as error:
            return _lost(hook.command[:80], hook.on_error, str(error), hook.file)


async def _function(me: Actor, event: Event, call: Function, told: Input) -> Said:
    name = getattr(call, "__name__", "function")

    async def called() -> Mapping[str, Any] | None:
        value = call(dict(told))
        return await value if inspect.isawaitable(value) else value

    try:
        host = caller.get()
        value = await called() if host is None else await host.run(called, me.cleanup)
        return Said() if value is None else of_json(event, value)
    except BaseException as raised:  # noqa: BLE001 - a program's own function; its failure is reported
        error = failure_of(raised)
        return _lost(name, "allow", str(error) or repr(error), "")


def _lost(hook: str, on_error: str, why: str, file: str) -> Said:
    where = f" ({file})" if file else ""
    note = f"hook `{hook}`{where}: {why}"
    if on_error == "deny":
        return Said(refused=f"a hook that has to be asked could not be: {why}", notes=(note,))
    return Said(notes=(note,))


def _applies(hook: Hook, matched: str, call: str) -> bool:
    """Whether a hook's `if` fits a call, or one command of it; a line that can't be read fits."""
    if not hook.condition:
        return True
    from fnmatch import fnmatchcase

    from ..tools.shell_line import commands_of

    name, pattern = split_pattern(hook.condition)
    same = name == matched or bool(set(ours(name)) & set(ours(matched)))
    if not same or not pattern:
        return same
    commands = commands_of(call) if "execute_command" in ours(matched) else ()
    texts = [call, *(text for each in commands or () for part in each.all() for text in part.texts)]
    return commands is None or any(fnmatchcase(text, pattern) for text in texts)
