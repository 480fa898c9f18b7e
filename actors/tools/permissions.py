"""Which tool calls may go ahead: `allow`, `ask` a person, or `deny`.

Three voices, in this order:

1. The user: `--allow TOOL`, then `permissions` of the configuration directory's config.yaml.
2. Where the user says nothing, what the tool does: our own tools that write or execute `ask`, all else goes ahead. The
   tools of an agent's own file and Python functions are part of the agent that the user chose to run.
3. The agent's own file, which can only be stricter: a file from a stranger can't give itself leave.

`--yes` answers every `ask` with yes, and leaves every `deny` as it is. `ask` is a question to a person (see
`supervisors.escalation`) that no model can answer; where nobody is there, the call is refused and the model is told.

Patterns are matched with the call's subject: the command, the path, the URL, or else the JSON text of all arguments.
`*` stands for any text, `?` for one character. A path is made plain first (`src/../x` is `x`). A shell command is
matched by an `allow` pattern only if it is a single command: `git status*` does not allow `git status; rm -rf .`. A
`deny` or `ask` pattern matches it if it matches any of its parts. That keeps an honest model from mishaps; it is no
sandbox.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ...protocol.errors import NobodyToAsk, ToolFailed
from ...protocol.permissions import PermissionRule, Verdict
from ...protocol.permissions import Permissions as Rules
from ...protocol.questions import Question
from .rendering import shortened, text_of
from .tool import Arguments, Tool

if TYPE_CHECKING:
    from ...supervisors import Actor

_STRICTNESS: dict[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}
_NOT_A_SINGLE_COMMAND = re.compile(r"[;&|<>$`\n\r(){}]")
_BETWEEN_COMMANDS = re.compile(r"[;&|\n\r(){}`]+|\$\(")
_SHOWN = 1_000


class Permissions:
    """What a run's user allows.

    Args:
        rules: `permissions` of the settings.
        allowed: names given with `--allow`.
        yes: whether every question is answered with yes.
    """

    def __init__(self, rules: Rules | None = None, *, allowed: Iterable[str] = (), yes: bool = False) -> None:
        self._rules = rules or {}
        self._allowed = set(allowed)
        self.yes = yes

    def verdict(self, tool: Tool, arguments: Arguments, own: Rules | None = None) -> Verdict:
        """What is to become of a call; `own` are the rules of the agent that makes it."""
        if not self._rules and not own and (tool.effect in ("none", "read") or tool.origin in ("file", "function")):
            return "allow"
        said: Verdict | None = "allow" if tool.name in self._allowed else _ruled(self._rules, tool, arguments)
        if said is None:
            harmless = tool.effect in ("none", "read") or tool.origin in ("file", "function", "family")
            said = "allow" if harmless else "ask"
        stricter = _ruled(own, tool, arguments) if own else None
        if stricter is not None and _STRICTNESS[stricter] > _STRICTNESS[said]:
            said = stricter
        return "allow" if said == "ask" and self.yes else said

    async def admit(self, me: Actor, tool: Tool, arguments: Arguments, own: Rules | None = None) -> None:
        """Return if the call may go ahead; asks a person on behalf of `me` if need be.

        Raises:
            ToolFailed: it may not; the text says why, for the model and for whoever reads along.
        """
        verdict = self.verdict(tool, arguments, own)
        if verdict == "allow":
            return
        if verdict == "deny":
            raise ToolFailed(f"'{tool.name}' was not run: the permissions deny this call")
        question = Question(
            id="",
            actor="",
            kind="choice",
            text=f"Allow {tool.name}?\n{_shown(arguments)}".rstrip(),
            options=("yes", "always", "no"),
            rule="`always` allows the tool for the rest of the run; any other answer is a no, and the model reads it",
            permission=tool.name,
        )
        try:
            answer = await me.ask_person(question)
        except NobodyToAsk:
            raise ToolFailed(
                f"'{tool.name}' was not run: it needs a person's permission and nobody is there to give it "
                f"(--allow {tool.name} or --yes gives it beforehand, as does `permissions` in config.yaml)"
            ) from None
        said = str(answer.value).strip()
        if said.lower() == "always":
            self._allow_from_now_on(me, tool.name)
        elif said.lower() not in ("yes", "y"):
            why = "" if said.lower() in ("no", "n", "") else f": {said}"
            raise ToolFailed(f"'{tool.name}' was not run: the user refused{why}")

    def _allow_from_now_on(self, me: Actor, name: str) -> None:
        self._allowed.add(name)
        desk = me.root.questions
        for question in desk.open:
            if question.permission == name and question.run == me.stream.run:
                desk.answer(question.id, "yes", by="always")


def _ruled(rules: Rules, tool: Tool, arguments: Arguments) -> Verdict | None:
    """What the rules say about a call; None if they say nothing. A full name comes before the longest pattern."""
    rule = rules.get(tool.name)
    if rule is None:
        names = [name for name in rules if fnmatchcase(tool.name, name)]
        if not names:
            return None
        rule = rules[max(names, key=len)]
    return _by_subject(rule, tool, arguments) if isinstance(rule, PermissionRule) else rule


def _by_subject(rule: PermissionRule, tool: Tool, arguments: Arguments) -> Verdict | None:
    forms = _subjects(tool, arguments)
    best: tuple[int, int] | None = None
    verdict: Verdict | None = None
    said: Mapping[Verdict, tuple[str, ...] | None] = {"allow": rule.allow, "ask": rule.ask, "deny": rule.deny}
    for candidate, patterns in said.items():
        for pattern in patterns or ():
            weight = len(pattern), _STRICTNESS[candidate]
            if (best is None or weight > best) and _matches(pattern, candidate, tool, forms):
                best, verdict = weight, candidate
    return verdict


def _matches(pattern: str, verdict: Verdict, tool: Tool, forms: tuple[str, ...]) -> bool:
    if not tool.shell or pattern == "*":
        return any(fnmatchcase(form, pattern) for form in forms)
    command = forms[0]
    if verdict == "allow":
        return not _NOT_A_SINGLE_COMMAND.search(command) and fnmatchcase(command, pattern)
    parts = [command, *(part.strip() for part in _BETWEEN_COMMANDS.split(command))]
    return any(fnmatchcase(part, pattern) for part in parts)


def _subjects(tool: Tool, arguments: Arguments) -> tuple[str, ...]:
    """The texts that stand for a call; for a path, also as seen from the working directory."""
    if not tool.subject:
        return (text_of(arguments),)
    value = arguments.get(tool.subject, "")
    text = (value if isinstance(value, str) else text_of(value)).strip()
    if tool.subject != "path":
        return (text,)
    plain = posixpath.normpath(text) if text else "."
    here = os.getcwd()  # noqa: PTH109 - a text is wanted, and compared with texts
    absolute = posixpath.normpath(posixpath.join(here, plain))
    below = absolute.startswith(here.rstrip("/") + "/")
    return (absolute[len(here.rstrip("/")) + 1 :] if below else absolute, absolute)


def _shown(arguments: Arguments) -> str:
    lines = []
    for name, value in arguments.items():
        text = value if isinstance(value, str) else text_of(value)
        lines.append(f"{name}: {shortened(text, _SHOWN)}")
    return shortened("\n".join(lines), 4 * _SHOWN)
