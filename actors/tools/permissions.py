"""Which tool calls may go ahead: `allow`, `ask` a person, or `deny`.

Three voices, in this order:

1. The user: `--allow TOOL`, then `permissions` of the configuration directory's config.yaml.
2. Where the user says nothing, what the tool does: our own tools that write or execute `ask`, all else goes ahead. The
   tools of an agent's own file and Python functions are part of the agent that the user chose to run.
3. The agent's own file, which can only be stricter: a file from a stranger can't give itself leave.

`--yes` answers every `ask` with yes, and so does, for one tool and one run, a person who says `always`; neither changes
a `deny`. `ask` is a question to a person (see `supervisors.escalation`) that no model can answer; where nobody is
there, the call is refused and the model is told. What is to be run is shown whole, or not run.

Patterns are matched with the call's subject: the command, the path, the URL, or else the JSON text of all arguments.
`*` stands for any text, `?` for one character; `dir/*` means the directory itself as well. A path is made plain first,
and looked at twice: as it is written (`src/../x` is `x`) and as the links in it lead. A `deny` or an `ask` holds if
either matches, an `allow` only if both do. A shell command is matched by an `allow` pattern only if it is a single
command: `git status*` does not allow `git status; rm -rf .`. A `deny` or `ask` pattern matches it if it matches any of
its parts. That keeps an honest model from mishaps; it is no sandbox.
"""

from __future__ import annotations

import os
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
_BEFORE_A_COMMAND = frozenset(
    {"!", "then", "do", "else", "elif", "if", "while", "until", "exec", "command", "sudo", "time"}
)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")

_SHOWN = 4_000
"""Characters of an argument of a tool that runs nothing; its middle is left out, and said to be."""

_READABLE = 16_000
"""Characters of a command or a program that a person may be asked about."""

_SHORT = 200


class Permissions:
    """What a run's user allows.

    Args:
        rules: `permissions` of the settings.
        allowed: names given with `--allow`.
        yes: whether every question is answered with yes.
        once: there is but one call, made by a person: nobody is asked about further ones.
    """

    def __init__(
        self, rules: Rules | None = None, *, allowed: Iterable[str] = (), yes: bool = False, once: bool = False
    ) -> None:
        self._rules = rules or {}
        self._allowed = frozenset(allowed)
        self._always: set[str] = set()
        self._asking: dict[str, tuple[Tool, Arguments, Rules | None]] = {}
        self._once = once
        self.yes = yes

    def verdict(self, tool: Tool, arguments: Arguments, own: Rules | None = None) -> Verdict:
        """What is to become of a call; `own` are the rules of the agent that makes it."""
        if not self._rules and not own and (tool.effect in ("none", "read") or tool.origin in ("file", "function")):
            return "allow"
        said: Verdict | None = "allow" if self._allows(tool) else _ruled(self._rules, tool, arguments)
        if said is None:
            harmless = tool.effect in ("none", "read") or tool.origin in ("file", "function", "family")
            said = "allow" if harmless else "ask"
        stricter = _ruled(own, tool, arguments) if own else None
        if stricter is not None and _STRICTNESS[stricter] > _STRICTNESS[said]:
            said = stricter
        return "allow" if said == "ask" and (self.yes or tool.name in self._always) else said

    def _allows(self, tool: Tool) -> bool:
        return tool.name in self._allowed or (tool.alias != "" and tool.alias in self._allowed)

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
        said = await self._ask(me, tool, arguments, own)
        if said.lower() == "always":
            self._always.add(tool.name)
            self._answer_the_same(me)
        elif said.lower() not in ("yes", "y"):
            why = "" if said.lower() in ("no", "n", "") else f": {said}"
            raise ToolFailed(f"'{tool.name}' was not run: the user refused{why}")

    async def _ask(self, me: Actor, tool: Tool, arguments: Arguments, own: Rules | None) -> str:
        question = Question(
            id=me.root.questions.new_id(),
            actor="",
            kind="choice",
            text=f"Allow {tool.name}?\n{_shown(tool, arguments)}".rstrip(),
            options=("yes", "no") if self._once else ("yes", "always", "no"),
            rule=None
            if self._once
            else "`always` allows the tool for the rest of the run; any other answer is a no, and the model reads it",
            permission=tool.name,
        )
        self._asking[question.id] = tool, arguments, own
        try:
            answer = await me.ask_person(question)
        except NobodyToAsk:
            raise ToolFailed(
                f"'{tool.name}' was not run: it needs a person's permission and nobody is there to give it "
                f"(--allow {tool.name} or --yes gives it beforehand, as does `permissions` in config.yaml)"
            ) from None
        finally:
            del self._asking[question.id]
        return str(answer.value).strip()

    def _answer_the_same(self, me: Actor) -> None:
        """Answer what is being asked already and need not be asked any more."""
        for id, (tool, arguments, own) in list(self._asking.items()):
            if self.verdict(tool, arguments, own) == "allow":
                me.root.questions.answer(id, "yes", by="always")


def _ruled(rules: Rules, tool: Tool, arguments: Arguments) -> Verdict | None:
    """What the rules say about a call; None if they say nothing. A full name comes before the longest pattern."""
    rule = rules.get(tool.name) or (rules.get(tool.alias) if tool.alias else None)
    if rule is None:
        called = {tool.name, tool.alias or tool.name}
        names = [name for name in rules if any(fnmatchcase(each, name) for each in called)]
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


def _matches(pattern: str, verdict: Verdict, tool: Tool, forms: list[tuple[str, ...]]) -> bool:
    """Whether a pattern matches a call, each of whose `forms` is a tuple of texts that mean the same."""
    if tool.shell and pattern != "*":
        command = " ".join(forms[0][0].split())
        if verdict == "allow":
            return not _NOT_A_SINGLE_COMMAND.search(forms[0][0]) and _like(command, pattern)
        parts = (_bare_command(part) for part in _BETWEEN_COMMANDS.split(forms[0][0]))
        return _like(command, pattern) or any(_like(part, pattern) for part in parts)
    found = [any(_like(text, pattern, path=tool.subject == "path") for text in form) for form in forms]
    return all(found) if verdict == "allow" else any(found)


def _like(text: str, pattern: str, *, path: bool = False) -> bool:
    """Whether a text matches, `*` and `?` being all that is special."""
    pattern = pattern.replace("[", "[[]")
    return fnmatchcase(text, pattern) or (path and pattern.endswith("/*") and fnmatchcase(text, pattern[:-2]))


def _bare_command(part: str) -> str:
    """A command without what may stand before it: assignments, `!`, `then`, `do`, `else`, `exec`, `command`, `sudo`."""
    words = part.split()
    while words and (words[0] in _BEFORE_A_COMMAND or _ASSIGNMENT.match(words[0])):
        del words[0]
    return " ".join(words)


def _subjects(tool: Tool, arguments: Arguments) -> list[tuple[str, ...]]:
    """The texts that stand for a call. For a path there are two forms, as written and as its links lead, each as seen
    from the working directory and from the root."""
    if not tool.subject:
        return [(text_of(arguments),)]
    value = arguments.get(tool.subject) or ""
    text = (value if isinstance(value, str) else text_of(value)).strip()
    if tool.subject != "path":
        return [(text,)]
    here = os.path.realpath(os.curdir)
    written = os.path.normpath(os.path.join(here, text or os.curdir))  # noqa: PTH118 - texts, to be compared with texts
    return [_seen(written, here), _seen(os.path.realpath(os.path.join(here, text or os.curdir)), here)]  # noqa: PTH118


def _seen(path: str, here: str) -> tuple[str, ...]:
    path = "/" + path.lstrip("/")
    below = path.startswith(here.rstrip("/") + "/")
    return (path[len(here.rstrip("/")) + 1 :], path) if below else ("." if path == here else path, path)


def _shown(tool: Tool, arguments: Arguments) -> str:
    """The arguments as a person reads them, the short ones first; lines of a value are marked, so that none of them
    can pass for an argument.

    Raises:
        ToolFailed: what is to be run is too long to be read.
    """
    runs = tool.shell or tool.effect == "execute"
    lines = []
    for name, value in sorted(arguments.items(), key=lambda item: len(text_of(item[1])) > _SHORT):
        text = value if isinstance(value, str) else text_of(value)
        if runs and len(text) > _READABLE:
            raise ToolFailed(
                f"'{tool.name}' was not run: a person would have to allow it, and nobody reads {len(text)} characters "
                f"of {name}. Write it to a file first, or run less at once"
            )
        first, *rest = (text if runs else shortened(text, _SHOWN)).split("\n")
        lines.append("\n".join([f"{name}: {first}", *(f"    | {line}" for line in rest)]))
    return "\n".join(lines)
