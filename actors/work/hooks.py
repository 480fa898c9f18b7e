"""Hooks of one run: commands and functions of the user, of a trusted workspace, and of the calling program.

`Hooks.before` and `Hooks.after` are called around each tool call; `at_beginning`, `at_end`, `before_shortening` and
`over` around a run. `Hooks.ask` selects the hooks for an event, runs them and merges their answers. Commands run in the
run's sandbox.

Hooks of the user come first, then hooks of the workspace, then functions of the calling program. All matching hooks run
concurrently, each in its own actor, and their answers are merged in that order. A hook that hangs, crashes or answers
invalid data affects only itself: the user is notified, and the call continues, unless the hook is marked `on_error:
deny`.

The input has Claude Code's format, with its names of tools and parameters (`protocol.other_programs`). An answer is
JSON or an exit status. A refusal wins, then a request to ask the user, then a permission. If two hooks change the
input of a call, the later one wins. Texts for the model are joined in order.

A durable run stores the answers about the prompt and the end of a run, since later steps depend on them.
"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
import trio
from msgspec.structs import replace

from ...protocol.chat import Content, TextPart, text_of
from ...protocol.errors import CallboardError, HookRefused, ToolFailed
from ...protocol.events import Warned
from ...protocol.hooks import Event, Hook, HookTable, matches
from ...protocol.other_programs import arguments_back, arguments_of, ours, split_pattern, theirs
from ...supervisors.event_loops import caller
from ...supervisors.process import run_process
from ...supervisors.ref import crash_text
from ...supervisors.user_code import failure_of
from ..io.imports import imported
from ..io.json_schema import LIBRARY, schema_errors
from .journal.actor_journal import noted
from .journal.run_journal import HOOK
from .playback import OutsideEffect, done
from .sandbox.run_sandbox import sandboxed
from .tools.tool import Arguments, Json, Tool
from .tools.tool import text_of as text_of_value

if TYPE_CHECKING:
    from ...protocol.permissions import Verdict
    from ...supervisors import Actor
    from .sandbox.launch import HeldProcess


REFUSES = 2
"""Exit status that means a refusal."""

MOST_TEXT = 20_000
"""Maximum characters of one hook's text for the model."""

PLAIN_TEXT = ("SessionStart", "UserPromptSubmit")
"""Events whose hooks may print plain text for the model, instead of JSON."""


class HookAnswers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Merged answers of hooks to one event.

    Attributes:
        refused: why the action is blocked, or for an end event why the agent must continue; None without a refusal.
        verdict: for a call: `ask` the user, `allow` without a question; "" for none.
        input: replacement arguments for the call; None to keep them.
        context: texts for the model.
        ends: why the whole run must end; None to continue.
        notes: texts for the user: messages and failures of hooks.
    """

    refused: str | None = None
    verdict: Literal["", "ask", "allow"] = ""
    input: dict[str, Any] | None = None
    context: tuple[str, ...] = ()
    ends: str | None = None
    notes: tuple[str, ...] = ()


def of_command(event: str, status: int | None, stdout: str, stderr: str, hook: str) -> HookAnswers:
    """Parse the answer of a command that exited by itself.

    Status `REFUSES` is a refusal, with stderr as its reason. With status 0, stdout that begins with `{` is
    JSON. Other text is context for the model if the event is one of `PLAIN_TEXT`, and is ignored otherwise.

    Raises:
        ValueError: the command exited with another status, or its JSON is invalid; the text is the reason.
    """
    if status == REFUSES:
        return HookAnswers(
            refused=_bounded(stderr.strip()) or f"the hook `{hook}` refused the action and gave no reason"
        )
    if status != 0:
        raise ValueError(
            f"exited with status {status}: {_bounded(stderr.strip())[:400] or 'there was no message on stderr'}"
        )
    text = stdout.strip()
    if not text.startswith("{"):
        return HookAnswers(context=(_bounded(text),)) if text and event in PLAIN_TEXT else HookAnswers()
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"printed no JSON: {error}") from error
    return of_json(event, value)


def of_json(event: str, value: object) -> HookAnswers:
    """Parse an answer in Claude Code's JSON format. `updatedInput` counts only for the event PreToolUse.

    Raises:
        ValueError: the value is not a mapping, has an unknown decision, or has a key with a wrong type.
    """
    if not isinstance(value, Mapping):
        raise ValueError("the hook's answer must be a JSON object (of a Python hook: a mapping, or None)")
    own = value.get("hookSpecificOutput") or {}
    if not isinstance(own, Mapping):
        raise ValueError("`hookSpecificOutput` in the hook's output is not an object")
    decision = own.get("permissionDecision") or value.get("decision")
    reason = own.get("permissionDecisionReason") or value.get("reason") or ""
    input = own.get("updatedInput")
    if input is not None and not isinstance(input, dict):
        raise ValueError("`updatedInput` in the hook's output is not an object")
    if decision not in (None, "", "allow", "approve", "deny", "block", "ask", "defer"):
        raise ValueError(
            f"the hook's output has the unknown decision {decision!r}; expected allow, approve, deny, block, ask "
            "or defer"
        )
    refuses = decision in ("deny", "block")
    context = own.get("additionalContext")
    note = value.get("systemMessage")
    return HookAnswers(
        refused=(_bounded(str(reason)) or "a hook refused the action without a reason") if refuses else None,
        verdict="ask" if decision == "ask" else "allow" if decision in ("allow", "approve") else "",
        # After the call it is too late to change its arguments.
        input=input if event == "PreToolUse" else None,
        context=(_bounded(str(context)),) if context else (),
        ends=str(value.get("stopReason") or "a hook ended the run") if value.get("continue") is False else None,
        notes=(_bounded(str(note)),) if note else (),
    )


def together(answers: Iterable[HookAnswers]) -> HookAnswers:
    """Merge the answers of all hooks to one event, in their order.

    The reasons of all refusals are joined by line ends. `ask` wins over `allow`. The last replacement of the arguments
    and the first reason to end the run count. Texts and notes are collected.
    """
    given = list(answers)
    verdicts = {each.verdict for each in given}
    inputs = [each.input for each in given if each.input is not None]
    refusals = [each.refused for each in given if each.refused is not None]
    return HookAnswers(
        refused="\n".join(refusals) if refusals else None,
        verdict="ask" if "ask" in verdicts else "allow" if "allow" in verdicts else "",
        input=inputs[-1] if inputs else None,
        context=tuple(text for each in given for text in each.context),
        ends=next((each.ends for each in given if each.ends is not None), None),
        notes=tuple(text for each in given for text in each.notes),
    )


def _bounded(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}\n[... {len(text) - MOST_TEXT} characters left out]"


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
        here, goes_on: the arguments of the same names.
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
        """Run the hooks before a call; see `tools.calls.CallHooks`.

        Return the arguments for the call, which hooks may have replaced, and the verdict: `allow`, `ask`, or None if
        no hook decided.

        Raises:
            ToolFailed: a hook refused the call, or replaced its arguments by invalid ones; the model receives the
                reason.
            HookRefused: a hook ends the run.
        """
        if not self.has("PreToolUse"):
            return arguments, None
        name = theirs(tool.name, mcp=tool.origin == "mcp")
        given = {"tool_name": name, "tool_input": _hook_arguments(self, tool, arguments), "tool_use_id": id}
        answers = await self.ask(me, "PreToolUse", name, given, _subject(tool, arguments))
        if answers.ends is not None:
            raise HookRefused(answers.ends)
        if answers.refused is not None:
            raise ToolFailed(f"'{tool.name}' was not run: {answers.refused}")
        verdict = answers.verdict or None
        if answers.input is None:
            return arguments, verdict
        # Arguments from a hook have not been validated yet, unlike those from the model.
        changed = arguments_back(tool.name, answers.input)
        await imported(*LIBRARY)
        wrong = schema_errors(changed, tool.spec.parameters)
        if wrong:
            raise ToolFailed(f"'{tool.name}' was not run: a hook replaced its arguments with invalid ones: {wrong[0]}")
        return changed, verdict

    async def after(self, me: Actor, tool: Tool, arguments: Arguments, value: Json, id: str) -> str:
        """Run the hooks after a call. Return text to append to the call's result; "" for none; see
        `tools.calls.CallHooks`.

        Raises:
            HookRefused: a hook ends the run.
        """
        if not self.has("PostToolUse"):
            return ""
        name = theirs(tool.name, mcp=tool.origin == "mcp")
        given = {
            "tool_name": name,
            "tool_input": _hook_arguments(self, tool, arguments),
            "tool_response": _plain(value),
            "tool_use_id": id,
        }
        answers = await self.ask(me, "PostToolUse", name, given, _subject(tool, arguments))
        if answers.ends is not None:
            raise HookRefused(answers.ends)
        # The call has happened, so a refusal only informs the model.
        texts = [answers.refused] if answers.refused is not None else []
        return "\n\n".join(f"[A hook says:]\n{text}" for text in (*texts, *answers.context))

    async def notify(self, me: Actor, question: Mapping[str, Any]) -> None:
        """Run the hooks for a question to a person. Body of an actor of its own: no caller waits for these hooks."""
        kind = "permission_prompt" if question.get("permission") else "elicitation_dialog"
        given = {"message": str(question.get("text", "")), "title": "Callboard", "notification_type": kind}
        await self.ask(me, "Notification", kind, given)

    def has(self, event: Event) -> bool:
        """Return True if there is a hook for the event."""
        return any(event in table for table in self._tables) or event in self._functions

    async def ask(self, me: Actor, event: Event, matched: str, given: Input, call: str = "") -> HookAnswers:
        """Run all matching hooks at once, and return their merged answer; an empty one if no hook matches.

        Each note of the answer is emitted as a warning. A replay returns the recorded answer and runs no hook.

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
        event_input = {
            "session_id": self._run,
            "transcript_path": "",
            "cwd": str(self.here),
            "permission_mode": "bypassPermissions" if self._yes else "default",
            "hook_event_name": event,
            **given,
        }
        ask = partial(self._all, me, event, commands, functions, event_input)
        # The call's id differs in each run, so the request that a replay looks up omits it.
        request = {key: value for key, value in given.items() if key != "tool_use_id"}
        # A replay takes the answers from its record and runs no hook.
        answers = await done(me, OutsideEffect("hook", event, request), HookAnswers, ask)
        for note in answers.notes:
            me.emit(Warned(code="hook", message=note))
        return answers

    async def _all(
        self, me: Actor, event: Event, commands: Sequence[Hook], functions: Sequence[Function], event_input: Input
    ) -> HookAnswers:
        answers: list[HookAnswers] = [HookAnswers()] * (len(commands) + len(functions))

        async def command(own: Actor, place: int, hook: Hook) -> None:
            # Stored by place, so that the merge order does not depend on which hook ends first.
            answers[place] = await self._command(own, event, hook, event_input)

        async def function(own: Actor, place: int, call: Function) -> None:
            answers[place] = await _function(own, event, call, event_input)

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

    async def _command(self, me: Actor, event: Event, hook: Hook, event_input: Input) -> HookAnswers:
        root = str(self._root)
        env = {**self._environ, "CLAUDE_PROJECT_DIR": root, "CALLBOARD_PROJECT_DIR": root}
        if hook.args is None:
            argv = ["/bin/sh", "-c", hook.command]
        else:
            # Without a shell, so the variable that Claude Code documents has to be replaced here.
            argv = [text.replace("${CLAUDE_PROJECT_DIR}", root) for text in (hook.command, *hook.args)]
        held = None
        try:
            held = await sandboxed(me, NAME)
            ran = await run_process(
                me,
                argv,
                name="process",
                input=msgspec.json.encode(event_input),
                env=env,
                cwd=self.here,
                output_limit=OUTPUT,
                timeout=hook.timeout,
                confinement=held,
            )
            printed = ran.stdout.decode("utf-8", "replace")
            # Exit status 2 of the package runner itself must not pass for a refusal by the hook.
            if ran.status == REFUSES and held is not None and await self._never_began(hook, held, ran.stderr_tail):
                raise ValueError(f"the package runner of the hook failed: {ran.stderr_tail.strip()[-400:]}")
            answers = of_command(event, ran.status, printed, ran.stderr_tail, hook.command[:80])
        except (CallboardError, ValueError) as error:
            return _lost(hook.command[:80], hook.on_error, f"{error}{_refused_hosts_note(held)}", hook.file)
        return (
            answers
            if answers.refused is None
            else replace(answers, refused=f"{answers.refused}{_refused_hosts_note(held)}")
        )

    async def _never_began(self, hook: Hook, held: HeldProcess, stderr: str) -> bool:
        """Return True if exit status 2 came from a package runner that the sandbox denied a host.

        uv exits with 2 when a download fails, but for a hook that status is a refusal. The runner's output must name
        the host: the sandbox may have denied a host to the hook's own program too, and then its refusal is valid.
        """
        if not any(host in stderr for host in held.refused_hosts):
            return False
        from .mcp.client.connect import names_runner

        root = str(self._root)
        line = " ".join((hook.command, *(hook.args or ())))
        line = line.replace("${CLAUDE_PROJECT_DIR}", root).replace("$CLAUDE_PROJECT_DIR", root)
        return await trio.to_thread.run_sync(names_runner, line, self.here)


async def _function(me: Actor, event: Event, call: Function, event_input: Input) -> HookAnswers:
    name = getattr(call, "__name__", "function")

    async def called() -> Mapping[str, Any] | None:
        value = call(dict(event_input))
        return await value if inspect.isawaitable(value) else value

    try:
        host = caller.get()
        value = await called() if host is None else await host.run(called, me.cleanup)
        return HookAnswers() if value is None else of_json(event, value)
    except BaseException as raised:  # A user function may raise anything; its failure is reported.
        error = failure_of(raised)
        log.error("hook '%s' raised an exception", name, exc_info=error)
        return _lost(name, "allow", crash_text(error), "")


def _refused_hosts_note(held: HeldProcess | None) -> str:
    """Return a note with the hosts that the sandbox refused to a hook, and how to allow them; "" for none."""
    hosts = () if held is None else tuple(held.refused_hosts)
    if not hosts:
        return ""
    allowed = " ".join(f"--allow host:{host}" for host in hosts)
    return f" [the sandbox blocked the hook's access to {' and '.join(hosts)}; to allow it: {allowed}]"


def _lost(hook: str, on_error: str, why: str, file: str) -> HookAnswers:
    where = f" ({file})" if file else ""
    note = f"hook `{hook}`{where}: {why}"
    if on_error == "deny":
        return HookAnswers(refused=f"a hook with `on_error: deny` failed: {why}", notes=(note,))
    return HookAnswers(notes=(note,))


def _applies(hook: Hook, matched: str, call: str) -> bool:
    """Return True if a hook's `if` fits a call, or one command of it, or a line that is not understood."""
    if not hook.condition:
        return True
    from fnmatch import fnmatchcase

    from .tools.shell_commands import ShellLine, parse

    name, pattern = split_pattern(hook.condition)
    same = name == matched or bool(set(ours(name)) & set(ours(matched)))
    if not same or not pattern:
        # A condition without a pattern applies to every call of the tool.
        return same
    line = parse(call) if "execute_command" in ours(matched) else ShellLine()
    texts = [call, *(text for each in line.commands for part in each.all() for text in part.texts)]
    # A hook is a guard: a line that is not understood may contain the command, so the hook runs.
    return bool(line.unclear) or any(fnmatchcase(text, pattern) for text in texts)


# --- input of hooks about a call -----------------------------------------------------------------------------------


def _hook_arguments(hooks: Hooks, tool: Tool, arguments: Arguments) -> Arguments:
    """Return the arguments under Claude Code's names; a path argument of a tool becomes absolute."""
    path = arguments.get("path")
    if tool.subject == "path" and isinstance(path, str):
        # Hooks written for Claude Code expect absolute paths.
        arguments = {**arguments, "path": os.path.normpath(hooks.here / path)}
    return arguments_of(tool.name, arguments)


def _subject(tool: Tool, arguments: Arguments) -> str:
    value = arguments.get(tool.subject) if tool.subject else None
    return value if isinstance(value, str) else ""


def _plain(value: Json) -> Json:
    """Return a result as JSON values, or as text if it has no JSON form."""
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):
        return text_of_value(value)


# --- hooks of a run as a whole: at its prompt, at its end, and before compaction ---------------------------------

MOST_STOPS = 10
"""Maximum number of times that hooks may make an ending agent continue."""


async def at_beginning(hooks: Hooks, me: Actor, prompt: Content, *, is_new: bool, model: str) -> Content:
    """Return the prompt with the text that hooks add.

    Args:
        is_new: the conversation has no earlier turns.

    Raises:
        HookRefused: a hook refuses the prompt, or ends the run.
    """
    texts: list[str] = []
    if is_new:
        texts += (await _asked(hooks, me, "SessionStart", "startup", {"source": "startup", "model": model})).context
    answers = await _asked(hooks, me, "UserPromptSubmit", "", {"prompt": text_of(prompt)})
    if answers.refused is not None:
        raise HookRefused(answers.refused)
    texts += answers.context
    if not texts:
        return prompt
    added = "\n\n".join(f"[Added by a hook:]\n{text}" for text in texts)
    return f"{prompt}\n\n{added}" if isinstance(prompt, str) else (*prompt, TextPart(added))


async def at_end(hooks: Hooks, me: Actor, *, agent: str, depth: int, again: int) -> str | None:
    """Return the text with which an agent must continue instead of ending; None if it may end.

    After `MOST_STOPS` continuations it may end, and no hook runs.

    Args:
        depth: number of agents above it.
        again: number of times that hooks already made it continue.

    Raises:
        HookRefused: a hook ends the run.
    """
    # A hook that never accepts the end would keep the agent running forever.
    if again >= MOST_STOPS:
        return None
    event: Event = "SubagentStop" if depth else "Stop"
    given: Input = {"stop_hook_active": again > 0}
    if depth:
        given |= {"agent_id": me.path, "agent_type": agent}
    return (await _asked(hooks, me, event, agent if depth else "", given)).refused


async def over(hooks: Hooks, me: Actor) -> None:
    """Run the hooks of the event that ends a conversation (SessionEnd). Their answers have no effect."""
    await hooks.ask(me, "SessionEnd", "other", {"reason": "other"})


async def before_shortening(hooks: Hooks, me: Actor) -> None:
    """Run the hooks of the event before a compaction (PreCompact). Their answers have no effect."""
    await hooks.ask(me, "PreCompact", "auto", {"trigger": "auto", "custom_instructions": ""})


async def _asked(hooks: Hooks, me: Actor, event: Event, matched: str, given: Input) -> HookAnswers:
    if not hooks.has(event):
        return HookAnswers()
    # `noted` stores the answer, so that a resumed run neither asks again nor gets another answer.
    answers = await noted(me, HOOK.format(event), HookAnswers, partial(hooks.ask, me, event, matched, given))
    if answers.ends is not None:
        raise HookRefused(answers.ends)
    return answers
