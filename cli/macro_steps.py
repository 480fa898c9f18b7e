"""Plays a macro's steps for `callboard macro`: a step is a prompt, or one of the commands of the chat in `COMMANDS`.

The chat knows more commands and can do better: its conversation is one state in one root, and here each prompt is a run
of its own. So this table is a stand-in. Where the chat's own `play(line)` can be had without a terminal, `play` takes a
fresh conversation of it in the place of `Steps`, and `COMMANDS` goes; `actors.work.macros.play` says what both have to
keep to.

A macro begins with no role, session, agent or knowledge, whatever the preludes of config.yaml name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import msgspec

from ..actors.io.directories import config_dir as configured
from ..actors.runs.sessions.names import TEMP
from ..actors.runs.sessions.store import SessionStore
from ..actors.work.macros.files import find
from ..actors.work.macros.play import lines_of
from ..actors.work.roles.files import find as find_role
from ..protocol.errors import CallboardError, UsageError
from ..protocol.macro import Macro
from ..protocol.requests import Overrides, RunRequest
from . import flag_values
from .render.text import safe
from .running import AdHoc, RunFlags, play_run
from .stdin import prompt_text
from .words import split_files, split_words


def play(name: str, arguments: Sequence[str], flags: dict[str, Any]) -> int:
    """Play a macro; the exit code of its last prompt, or of the first that failed. The flags are those of the command.

    Raises:
        CallboardError: there is no such macro, its file has errors, a variable has no value, or a step is no line that
            can be played here.
    """
    base, _ = configured(flags["config_dir"], os.environ)
    macro = find(name, base)
    piped = prompt_text("", quiet=flags["quiet"])
    given = [*arguments, *([piped] if piped else [])]
    lines = lines_of(macro, given)
    if not flags["quiet"]:
        _tell_oddities(macro, given)
    request = flag_values.request(flags)
    steps = Steps(request=request, flags=flags)
    try:
        for line in lines:
            if not flags["quiet"]:
                sys.stderr.write(f">> {safe(line)}\n")
            code = steps.play(line)
            if code or steps.over:
                return code
    finally:
        steps.forget(SessionStore(base))
    return 0


def _tell_oddities(macro: Macro, given: Sequence[str]) -> None:
    for problem in macro.problems:
        sys.stderr.write(f"{safe(str(problem))}\n")
    if left := macro.left_over(given):
        sys.stderr.write(
            f"{len(left)} argument(s) that no variable takes were passed over. Usage: {safe(macro.usage)}\n"
        )


@dataclass
class Steps:
    """What the steps so far have chosen.

    Attributes:
        request: the run of a prompt, as far as it is known.
        flags: those of `RunFlags` that the user has given.
        agent: answers the prompts; None for a model, in a role or without one.
        over: the macro has said `.exit`.
    """

    request: RunRequest
    flags: dict[str, Any]
    role: str | None = None
    prompt: str | None = None
    agent: str | None = None
    session: str | None = None
    tools: tuple[str, ...] = ()
    over: bool = False
    _temporary: list[str] = field(default_factory=list)

    def play(self, line: str) -> int:
        """Play one line; the exit code of what it has run.

        Raises:
            CallboardError: it can't be played.
        """
        text = line.strip()
        if not text.startswith("."):
            return self.ask(text)
        command, _, rest = text.partition(" ")
        known = COMMANDS.get(command)
        if known is None:
            hint = f"there are: {', '.join(COMMANDS)}"
            raise UsageError(f"`{command}` can't be played outside of the chat; {hint}")
        return known(self, rest.strip()) or 0

    def ask(self, text: str, *, files: tuple[str, ...] = (), role: str | None = None) -> int:
        """Put a prompt to the agent or to the model; with a role, to the model alone and for once."""
        once = role is not None
        request = msgspec.structs.replace(
            self.request, target="" if once else self.agent or "", prompt=text, files=files
        )
        adhoc = AdHoc(instructions="", tools=self.tools, role=role or self.role, prompt=None if once else self.prompt)
        flags = RunFlags(
            adhoc=adhoc if once or self.agent is None else None,
            reads_stdin=False,
            output="text",
            session=None if once else self.session,
            preludes=False,
            **self.flags,
        )
        return play_run(request, flags)

    def forget(self, store: SessionStore) -> None:
        """Remove the sessions that were for this macro alone."""
        for name in self._temporary:
            for agent in {None, self.agent}:
                try:
                    id, owner = store.find(name, agent)
                    store.delete(id, owner)
                except CallboardError:
                    continue  # nothing was said in it

    def in_session(self, name: str) -> None:
        """Go on in a session; without a name, in one that ends with the macro."""
        if not name or name == TEMP:
            name = f"macro-{uuid4().hex[:12]}"
            self._temporary.append(name)
        self.session = name


def _role(steps: Steps, rest: str) -> int | None:
    name, _, text = rest.partition(" ")
    if not name:
        raise UsageError("Usage: .role <name> [text]")
    find_role(name, configured(steps.flags["config_dir"], os.environ)[0])  # which says what is wrong with it
    if text.strip():
        return steps.ask(text.strip(), role=name)
    _without_agent(steps, ".role")
    steps.role, steps.prompt = name, None
    return None


def _prompt(steps: Steps, rest: str) -> None:
    if not rest:
        raise UsageError("Usage: .prompt <text>")
    _without_agent(steps, ".prompt")
    steps.role, steps.prompt = None, rest


def _without_agent(steps: Steps, command: str) -> None:
    if steps.agent is not None:
        raise UsageError(
            f"`{command}` changes how a model answers, and agent '{steps.agent}' does; `.exit agent` first"
        )


def _model(steps: Steps, rest: str) -> None:
    if not rest:
        raise UsageError("Usage: .model <name>")
    steps.request = msgspec.structs.replace(steps.request, model=rest)


def _agent(steps: Steps, rest: str) -> None:
    words = split_words(rest)
    if not words:
        raise UsageError("Usage: .agent <name> [session] [key=value]...")
    variables = flag_values.variables(word for word in words[1:] if "=" in word)
    names = [word for word in words[1:] if "=" not in word]
    if len(names) > 1:
        raise UsageError(f"Usage: .agent <name> [session] [key=value]...; '{names[1]}' is one word too many")
    steps.agent, steps.role, steps.prompt = words[0], None, None
    steps.request = msgspec.structs.replace(steps.request, variables=variables)
    steps.session = None
    if names:
        steps.in_session(names[0])


def _file(steps: Steps, rest: str) -> int:
    files, text = split_files(rest)
    if not files:
        raise UsageError("Usage: .file <file|dir|url|`command`>... [-- text...]")
    return steps.ask(text, files=files)


def _exit(steps: Steps, rest: str) -> None:
    if rest == "role":
        steps.role = steps.prompt = None
    elif rest == "session":
        steps.session = None
    elif rest == "agent":
        steps.agent = steps.session = None
        steps.request = msgspec.structs.replace(steps.request, variables={})
    elif rest == "rag":
        steps.request = msgspec.structs.replace(steps.request, knowledge=())
    elif rest:
        raise UsageError("Usage: .exit [role|session|agent|rag]")
    else:
        steps.over = True


def _rag(steps: Steps, rest: str) -> None:
    if not rest:
        raise UsageError("Usage: .rag <name>")
    steps.request = msgspec.structs.replace(steps.request, knowledge=(rest,))


_SAMPLING: dict[str, tuple[str, Callable[[str], Any]]] = {
    "temperature": ("temperature", float),
    "top_p": ("top_p", float),
    "max_output_tokens": ("max_tokens", int),
}


def _set(steps: Steps, rest: str) -> None:
    key, _, text = rest.partition(" ")
    text = text.strip()
    if not key or not text:
        raise UsageError("Usage: .set <key> <value>. If value is null, unset key.")
    if key in ("enabled_tools", "enabled_mcp_servers"):
        mark = "" if key == "enabled_tools" else "mcp:"
        kept = tuple(name for name in steps.tools if name.startswith("mcp:") != bool(mark))
        new = () if text == "null" else tuple(f"{mark}{name.strip()}" for name in text.split(",") if name.strip())
        steps.tools = (*kept, *new)
        return
    if key not in _SAMPLING:
        keys = ", ".join([*_SAMPLING, "enabled_tools", "enabled_mcp_servers"])
        raise UsageError(f"Unknown key '{key}'; outside of the chat there are: {keys}")
    name, kind = _SAMPLING[key]
    sampling = {each: value for each, value in steps.request.overrides.sampling.items() if each != name}
    if text != "null":
        try:
            sampling[name] = kind(text)
        except ValueError:
            raise UsageError(f"`.set {key}` takes a number or null, not '{text}'") from None
    steps.request = msgspec.structs.replace(steps.request, overrides=Overrides(sampling=sampling))


def _info(steps: Steps, _rest: str) -> None:
    said = [
        ("model", steps.request.model),
        ("role", steps.role),
        ("prompt", steps.prompt),
        ("agent", steps.agent),
        ("session", steps.session),
        ("tools", ", ".join(steps.tools)),
    ]
    sys.stdout.write("".join(f"{name}: {safe(value)}\n" for name, value in said if value))


COMMANDS: dict[str, Callable[[Steps, str], int | None]] = {
    ".agent": _agent,
    ".exit": _exit,
    ".file": _file,
    ".info": _info,
    ".model": _model,
    ".prompt": _prompt,
    ".rag": _rag,
    ".role": _role,
    ".session": lambda steps, rest: steps.in_session(rest),
    ".set": _set,
}
"""The commands that make sense without a person at the terminal; each gets what stands behind it."""
