"""Permission policy for tool calls: `allow`, `ask` the user, or `deny`; and the permanent answers of users.

Three sources are consulted, in this order:

1. The user: `--allow TOOL`, then `permissions` of the configuration directory's config.yaml.
2. Where the user sets no rule, the tool's effect: built-in tools that write, execute or send `ask`; all others are
   allowed. Tools of an agent's own file and Python functions are part of the agent that the user chose to run. A global
   file with the name of a built-in tool that sends asks as that tool does.
3. The agent's own file, which can only be stricter, so an untrusted file cannot grant itself a permission. Its denials
   also apply to everything below the agent (`below`), at any depth.

`--yes` answers every `ask` with yes. The answer `run` does so for one tool and one run. The answers `always` and
`always: PATTERN` are permanent (`StoredAnswers`); where nothing can be stored, they hold for the run. None of these
changes a `deny`. `ask` is a question to a person (see `supervisors.escalation`) that no model can answer. Without a
person, the call is refused and the model receives the reason. A command or program that would run is displayed in full,
or not run.

Paths that no process in the run's sandbox may change (`sandbox.protected_paths`: git's directory, startup files of the
user's programs) need a question of their own before a built-in tool changes them. `--yes`, `--allow`, rules, hooks and
earlier answers do not replace that question.

Rules may also match the destination of a call: `server:github` and `host:*.example.com` (`rules`).

Patterns are matched with the call's subject: the command, the path, the URL, or else the JSON text of all arguments.
`*` matches any text, `?` one character.

Paths are resolved from the run's directory, whatever the process's working directory is; `rules` defines the
meaning of patterns. A pattern that denies a path to `fs_cat`, `fs_read` or `fs_grep` denies it to every tool that
returns file contents (`Tool.reads`), since the file is the same. For a tool without a subject, a `deny` or an `ask` is
also matched with every text among its arguments, as it is and as a path.

Each simple command of a shell command is judged (`shell_rules`): `git status*` does not allow `git status; rm -rf .`,
and `deny: "rm *"` also matches `X=1 sudo rm -rf .`. A line that is not understood is asked about, and the question
names the construct. These rules guard against accidents. The boundary is the sandbox: no rule can check the actions of
a script or an interpreter.

Permanent answers are stored per directory and bound to the tool's identity:

    ~/.local/state/callboard/allowed/<hash of the directory's path>.json

For a tool that runs something, an answer covers only the identical command, code or program; for any other tool, all
calls. With a pattern (`always: git log *`), an answer covers every call that the same pattern under `permissions` would
allow. Each simple command of a line therefore has to match.

The tool's identity is stored as a hash. It covers the bytes of a tool file, or the start command of an MCP server and
the tool's definition. After a change of the identity, the user is asked again. Only the user's own runs use these
answers and add to them.
"""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ....protocol.decoding import json_decoder
from ....protocol.errors import CallRefused, ConfigError, NobodyToAsk, ToolFailed
from ....protocol.kernel.questions import Question, pattern_of
from ....protocol.permissions import PermissionRule, Verdict, denies
from ....protocol.permissions import Permissions as Rules
from ...io.atomic_write import write_whole
from ...io.directories import private_directory, state_dir
from .. import playback as play
from ..journal.actor_journal import scope_of as current_scope
from ..sandbox.run_sandbox import current as current_sandbox
from .rules import (
    HOST,
    Bar,
    FileAccess,
    JudgedCall,
    PathContext,
    PathRule,
    by_subject,
    denials,
    of_denials,
    of_host,
    places,
    rule_for,
    ruled,
    stricter,
    weighed,
)
from .tool import Arguments, Tool, shortened, text_of

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ....supervisors.escalation import OpenQuestions

READERS = ("fs_cat", "fs_read", "fs_grep")
"""Tools that return file contents. A pattern that denies a path to one of them denies it to all tools that do.

They run outside of the sandbox, and ask before they return files that it hides from processes.
"""

_DENY: frozenset[Verdict] = frozenset(("deny",))
_NOT_ALLOW: frozenset[Verdict] = frozenset(("deny", "ask"))

_SHOWN = 4_000
"""Maximum characters displayed for an argument of a tool that runs nothing; the middle is left out with a note."""

_READABLE = 16_000
"""Maximum characters of a command or a program in an approval question."""

_SHORT = 200

PATTERN_TRIES = 5
"""Maximum number of times that a question is asked, until the pattern in its answer matches the call."""

_OPTIONS = ("yes", "always", "no")
_RULE = "`always` allows the tool for the rest of the run; any other answer refuses the call and is sent to the model"
_OPTIONS_KEPT = ("yes", "run", "always", "no")
_RULE_KEPT = (
    "`run` allows the tool for the rest of the run; `always` permanently allows this command, or else the "
    "tool, in this directory; `always: PATTERN` permanently allows calls that match the pattern; any other "
    "answer refuses the call and is sent to the model"
)


_NONE: frozenset[str] = frozenset()


class Permissions:
    """Permissions of one run.

    Args:
        rules: `permissions` of the settings.
        allowed: names given with `--allow`.
        yes: answer every question with yes.
        once: the run consists of one call, made by the user, so the question offers no permission for further calls.
        here: the run's directory; None for the process's working directory.
        kept: permanent answers of the user; None where none can be stored.
    """

    def __init__(
        self,
        rules: Rules | None = None,
        *,
        allowed: Collection[str] = (),
        yes: bool = False,
        once: bool = False,
        here: Path | None = None,
        kept: StoredAnswers | None = None,
    ) -> None:
        self._rules = rules or {}
        self._allowed = frozenset(allowed) if allowed else _NONE
        # A dict instead of a set: an empty set uses three times the memory, and each run has one.
        self._always: dict[str, None] = {}
        self._asking: list[_Asking] = []
        self._once = once
        self._here = here
        self._kept = kept
        self._ceilings: tuple[Rules, ...] = ()
        self.yes = yes

    def below(self, rules: Rules) -> Permissions:
        """Return the permissions for everything below an agent with these rules: their denials also apply there.

        Answers `always` and open questions are shared with the whole run.
        """
        if not any(denies(rule) for rule in rules.values()):
            return self
        # A shallow copy, so that answers and open questions remain shared with the whole run.
        lower = copy.copy(self)
        lower._ceilings = (*self._ceilings, rules)  # noqa: SLF001 - a copy of our own
        return lower

    @property
    def denied(self) -> tuple[Rules, ...]:
        """The rules of all agents above; only their denials count."""
        return self._ceilings

    def verdict(self, tool: Tool, arguments: Arguments, own: Rules | None = None) -> Verdict:
        """Return the verdict on a call; `own` are the rules of the calling agent."""
        return self._judged(tool, arguments, own)[0]

    def _judged(self, tool: Tool, arguments: Arguments, own: Rules | None) -> tuple[Verdict, FileAccess]:
        """Return the verdict, and the file access without an approval, which widens it (`_asked_about`)."""
        harmless = _is_harmless(tool)
        # Fast path for the common case: no rule exists, and the call is harmless.
        if not self._rules and not own and not self._ceilings and harmless and tool.name not in READERS:
            return "allow", FileAccess()
        call = JudgedCall(tool, arguments, PathContext.of(self._here))
        said: Verdict | None = "allow" if self._allows(tool) else ruled(self._rules, call)
        if said is None:
            said = "allow" if harmless or tool.origin == "family" else "ask"
        said = stricter(said, ruled(own, call) if own else None)
        # A child agent must not escape a denial of an agent above, so those rules only make the verdict stricter.
        for rules in self._ceilings:
            said = stricter(said, of_denials(rules, call))
        bars = tuple(self._bars(call, own)) if tool.reads or tool.run_within is not None else ()
        for bar in bars:
            # The bars also apply to the call's own path, not only to files that it comes across.
            if tool.subject == "path":
                found = bar.rule.verdict(call.forms, fold=call.fold)
                said = stricter(said, found if found in bar.verdicts else None)
        leads = call.forms[-1] if len(call.forms) > 1 else ""
        changes = tool.effect == "write" and tool.run_within is not None
        readers = tuple(self._readers(call, own)) if changes else ()
        judged = frozenset(call.forms)
        access = FileAccess(judged=judged, bars=bars, fold=call.fold, leads=leads, readers=readers)
        # These turn `ask` into `allow`, and never change a `deny`.
        if self.yes or tool.name in self._always or (said == "ask" and self._keeps(tool, arguments)):
            return ("allow" if said == "ask" else said), _asked_about(access)
        return said, access

    def _bars(self, call: JudgedCall, own: Rules | None) -> Iterator[Bar]:
        """Yield the patterns that apply to every file that the call opens, each once."""
        voices = [] if self._allows(call.tool) else [(self._rules, _NOT_ALLOW)]
        voices += [(own, _NOT_ALLOW)] if own else []
        voices += [(rules, _DENY) for rules in self._ceilings]
        for rules, verdicts in voices:
            names = [call.names] if call.tool.subject == "path" else []
            names += [(name,) for name in READERS if call.tool.reads]
            found = [rule for each in names if isinstance(rule := rule_for(rules, each), PermissionRule)]
            for rule in dict.fromkeys(found):
                yield Bar(verdicts, PathRule.of(rule, call.here))

    def _readers(self, call: JudgedCall, own: Rules | None) -> Iterator[Bar]:
        """Yield the patterns that deny reading file contents, for a call that changes files."""
        for rules in (self._rules, own or {}, *self._ceilings):
            found = [rule_for(rules, (name,)) for name in READERS]
            if "deny" in found:
                yield Bar(_DENY, PathRule.of(PermissionRule(deny=("/*",)), call.here))
            for rule in dict.fromkeys(each for each in found if isinstance(each, PermissionRule)):
                yield Bar(_DENY, PathRule.of(rule, call.here))

    def _keeps(self, tool: Tool, arguments: Arguments) -> bool:
        return self._kept is not None and self._kept.allows(tool, arguments)

    def _allows(self, tool: Tool) -> bool:
        return tool.name in self._allowed or (tool.alias != "" and tool.alias in self._allowed)

    def of_host(self, host: str, port: int) -> tuple[Verdict, str] | None:
        """Return the verdict on a network host that processes of the run want to reach, and the matching pattern.

        None if no rule matches. The pattern is "" for a denial by an agent above.
        """
        given: Rules = {name: "allow" for name in self._allowed if name.startswith(HOST)}
        rules = {**self._rules, **given}
        said = of_host(rules, host, port)
        denied = any((of_host(each, host, port) or ("", ""))[0] == "deny" for each in self._ceilings)
        return ("deny", "") if denied else said

    def explained(self, tool: Tool, arguments: Arguments, own: Rules | None = None) -> Explained:
        """Return the verdict, and the statement of each source in the order of precedence."""
        call = JudgedCall(tool, arguments, PathContext.of(self._here))
        if self._allows(tool):
            reasons = [Reason(who="--allow", verdict="allow", rule=tool.name)]
        else:
            reasons = _reasons("config.yaml", self._rules, call)
        if all(reason.verdict is None for reason in reasons):
            does = (
                f"built-in tools that {tool.effect} need approval"
                if tool.effect in ("write", "execute", "send")
                else ""
            )
            verdict: Verdict = "allow" if _is_harmless(tool) or tool.origin == "family" else "ask"
            reasons.append(Reason(who="effect of the tool", verdict=verdict, why=does if verdict == "ask" else ""))
        if own:
            reasons += _reasons("the agent's file", own, call)
        for rules in self._ceilings:
            reasons += [each for each in _reasons("an agent above", denials(rules), call) if each.verdict is not None]
        return Explained(verdict=self.verdict(tool, arguments, own), reasons=tuple(reasons))

    async def admit(
        self,
        me: Actor,
        tool: Tool,
        arguments: Arguments,
        own: Rules | None = None,
        *,
        hooked: Verdict | None = None,
    ) -> FileAccess:
        """Return the file access of a permitted call. Ask the user on behalf of `me` if necessary.

        Args:
            hooked: verdict of hooks: `allow` skips the question, `ask` asks about a call that would be allowed. Neither
                changes a denial or a question about a protected path, and `--yes` overrides `ask`.

        Raises:
            CallRefused: the user refused the call.
            ToolFailed: the call is refused for another reason, or the user refused one on a protected path. The text
                has the reason, for the model and the user.
        """
        verdict, access = self._judged(tool, arguments, own)
        # Protected paths come first: neither `--yes` nor a hook nor an earlier answer may skip this question.
        guard = self._guard(tool, access)
        if guard and verdict != "deny":
            diff = "" if tool.preview is None else await tool.preview(arguments, _asked_about(access))
            said, _ = await self._ask_person(me, tool, arguments, own, access.leads, diff, guard)
            if said.lower() not in ("yes", "y"):
                from ..sandbox.protected_paths import refused

                raise refused(tool.name)
            return _asked_about(access)
        if hooked == "ask" and verdict == "allow" and not self.yes:
            verdict = "ask"
        # A hook may answer a question, but never override a denial.
        elif hooked == "allow" and verdict == "ask":
            return _asked_about(access)
        if verdict == "allow":
            return self._without_secrets(tool, access)
        if verdict == "deny":
            raise ToolFailed(f"'{tool.name}' was not run: the permissions deny this call")
        diff = await _previewed(me, tool, arguments, access)
        reason = self._why_asked(tool, arguments, own) if tool.shell else ""
        if tool.name in self._always:  # Another question was answered with `always` while the preview was made.
            return _asked_about(access)
        said, pattern = await self._ask_person(me, tool, arguments, own, access.leads, diff, reason=reason)
        if pattern is not None or said.lower() in ("run", "always"):
            if self._kept is not None and said.lower() != "run":
                self._kept.keep(tool, arguments, pattern)
            else:
                self._always[tool.name] = None
            # The new permission may answer questions of other calls that are already open.
            for each in list(self._asking):
                if each.whose.verdict(each.tool, each.arguments, each.own) == "allow":
                    each.agree(me.root.questions)
        elif said.lower() not in ("yes", "y"):
            why = "" if said.lower() in ("no", "n", "") else f": {said}"
            raise CallRefused(f"'{tool.name}' was not run: the user refused{why}")
        return _asked_about(access)

    def _own_asks(self, tool: Tool, arguments: Arguments, own: Rules) -> bool:
        """Return whether the agent's own permissions ask about a call. `--allow` does not widen them."""
        return ruled(own, JudgedCall(tool, arguments, PathContext.of(self._here))) == "ask"

    def _why_asked(self, tool: Tool, arguments: Arguments, own: Rules | None) -> str:
        """Return why the rules ask about a shell line; "" if a pattern matches it, or no rule is about its text."""
        reasons = [
            reason for reason in self.explained(tool, arguments, own).reasons if reason.why and reason.verdict == "ask"
        ]
        found = dict.fromkeys(
            reason.why
            if reason.why.startswith("not understood")
            else f"`{shortened(reason.command, _SHORT)}`: {reason.why}"
            for reason in reasons
            if reason.command
        )
        return f"asked because: {'; '.join(found)}" if found else ""

    def _without_secrets(self, tool: Tool, access: FileAccess) -> FileAccess:
        """Return the access of a search without environment files, which no process of the run can read."""
        sandbox = current_sandbox.get()
        if tool.name not in READERS or sandbox is None or sandbox.profile in ("open", "off"):
            return access
        from ..sandbox.protected_paths import ENV_PATHS

        bar = Bar(frozenset(("ask",)), PathRule((("ask", ENV_PATHS),)))
        return msgspec.structs.replace(access, bars=(*access.bars, bar))

    def _guard(self, tool: Tool, access: FileAccess) -> str:
        """Return why a call needs a question of its own: no process of the run may change, or read, its path."""
        sandbox = current_sandbox.get()
        if sandbox is None or tool.subject != "path" or self._once:
            return ""
        if tool.name in READERS:
            return sandbox.why_unreadable(access.judged)
        if tool.effect != "write":
            return ""
        return sandbox.why_unchangeable(access.judged)

    async def _ask_person(
        self,
        me: Actor,
        tool: Tool,
        arguments: Arguments,
        own: Rules | None,
        leads: str,
        diff: str,
        guard: str = "",
        reason: str = "",
    ) -> tuple[str, str | None]:
        """Return the answer, and the pattern in it. A pattern that does not match the call is asked for again."""
        told = {tool.subject: arguments.get(tool.subject, "")} if diff else arguments
        shown = _readable_arguments(tool, {**told, "leads to": leads} if leads else told)
        question = Question(
            id="",
            actor=me.path,
            kind="choice",
            text=f"Allow {tool.name}?\n{shown}".rstrip()
            + "".join(f"\n{line}" for line in (guard, reason) if line)
            + (f"\n{diff}" if diff else ""),
            diff=diff,
            options=("yes", "no") if self._once or guard else _OPTIONS if self._kept is None else _OPTIONS_KEPT,
            rule=None if self._once or guard else _RULE if self._kept is None else _RULE_KEPT,
            permission=tool.name,
            pattern=None if self._once or guard or self._kept is None else default_pattern(tool, arguments),
        )
        for _ in range(PATTERN_TRIES):
            said = await self._ask(me, tool, arguments, own, question, guard, reason)
            pattern = pattern_of(question, said)
            if pattern is None or self._kept is None or pattern == question.pattern:
                return said, pattern
            if self._kept.covers(tool, arguments, pattern):
                return said, pattern
            problem = f"the pattern '{shortened(pattern, _SHORT)}' does not match this call, so it would not allow it"
            question = msgspec.structs.replace(question, problem=problem)
        # A program that gives the same answer again and again: treat it as a no, with this reason.
        return problem, None

    async def _ask(
        self,
        me: Actor,
        tool: Tool,
        arguments: Arguments,
        own: Rules | None,
        question: Question,
        guard: str,
        reason: str,
    ) -> str:
        asking = _Asking(self, tool, arguments, own, question)
        if not guard:
            self._asking.append(asking)
        try:
            answer = await me.ask_person(question)
        except NobodyToAsk:
            if guard:
                from ..sandbox.protected_paths import nobody_to_ask

                raise nobody_to_ask(tool.name, guard) from None
            why = f"; {reason}" if reason else ""
            if not self._allows(tool) and not (own and self._own_asks(tool, arguments, own)):
                raise ToolFailed(
                    f"'{tool.name}' was not run: it needs approval, and no terminal or client is attached. "
                    f"To approve it in advance, use --allow {tool.name} or --yes, `permissions` in "
                    f"config.yaml, or in Python `allow=['{tool.name}']` or `approve_all=True`{why}"
                ) from None
            # The agent's own rules and hooks ask about calls that `--allow` names.
            raise ToolFailed(
                f"'{tool.name}' was not run: its agent or a hook requires approval, and no terminal or "
                "client is attached. To approve it in advance, use --yes or `approve_all=True` (--allow or "
                f"`allow` do not approve it){why}"
            ) from None
        finally:
            if not guard:
                self._asking.remove(asking)
        return str(answer.value).strip()


class _Asking:
    """An open approval question. The question id is unknown here: the desk or the enclosing question assigns it."""

    def __init__(
        self, whose: Permissions, tool: Tool, arguments: Arguments, own: Rules | None, asked: Question
    ) -> None:
        self.whose, self.tool, self.arguments, self.own = whose, tool, arguments, own
        self._asked = asked

    def agree(self, desk: OpenQuestions) -> None:
        """Answer the question with yes, because a permission given meanwhile covers its call."""
        for open in desk.open:
            if open.actor == self._asked.actor and open.text == self._asked.text:
                desk.answer(open.id, "yes", by="always")


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Statement of one source about a call.

    Attributes:
        who: `--allow`, `config.yaml`, `effect of the tool`, `the agent's file`, `an agent above`.
        verdict: None if the source has no rule for the call.
        rule: the name of the rule.
        pattern: the pattern that decided; "" if none did.
        command: the part of a shell command that the statement is about.
        why: the reason in words, if no pattern decided.
    """

    who: str
    verdict: Verdict | None
    rule: str = ""
    pattern: str = ""
    command: str = ""
    why: str = ""


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """Verdict on a call, with the reasons."""

    verdict: Verdict
    reasons: tuple[Reason, ...]


def _is_harmless(tool: Tool) -> bool:
    """Return True if a call needs no permission by default."""
    if tool.effect in ("none", "read") or tool.origin == "function":
        return True
    return tool.origin == "file" and tool.effect != "send"


def _reasons(who: str, rules: Rules, call: JudgedCall) -> list[Reason]:
    of_places = [
        Reason(who=who, verdict=by_subject(rule, call) if isinstance(rule, PermissionRule) else rule, rule=name)
        for name, rule in places(rules, call)
    ]
    rule = rule_for(rules, call.names)
    name = next((name for name, each in rules.items() if each is rule), "")
    if rule is None or isinstance(rule, str):
        return [Reason(who=who, verdict=rule, rule=name, why="" if rule else "no rule matches this tool"), *of_places]
    if call.tool.shell:
        from .shell_rules import verdicts_of

        return [
            Reason(who=who, verdict=s.verdict, rule=name, pattern=s.pattern, command=s.command, why=s.why)
            for s in verdicts_of(weighed(rule), call.text)
        ]
    return [Reason(who=who, verdict=by_subject(rule, call), rule=name), *of_places]


async def _previewed(me: Actor, tool: Tool, arguments: Arguments, access: FileAccess) -> str:
    """Return the diff for the approval question.

    Raises:
        ToolFailed: the call cannot succeed, so there is no reason to ask.
    """
    if tool.preview is None:
        return ""
    try:
        found = play.Preview(diff=await tool.preview(arguments, _asked_about(access)))
    except ToolFailed as failed:
        # A replay must not depend on today's files: its call fails only if the recorded call failed.
        found = play.Preview(trouble=str(failed) if play.in_the_world() else "")
    found = play.value(me, play.PREVIEW, play.Preview, lambda: found)
    scope = current_scope(me)
    # In a resumed run the question is open already, and the call may have been made before the process was killed.
    asked_before = scope is not None and bool(scope.questions())
    # The reason quotes the file: rules that ask about reading it come first.
    if found.trouble and not asked_before and not access.hides(*access.judged):
        raise ToolFailed(found.trouble)
    return found.diff


def _asked_about(access: FileAccess) -> FileAccess:
    """Return the access after approval of the call: it covers paths that rules ask about, but not denied ones."""
    return msgspec.structs.replace(access, bars=tuple(Bar(_DENY, bar.rule) for bar in access.bars))


def _readable_arguments(tool: Tool, arguments: Arguments) -> str:
    """Return the arguments as displayed to the user, short ones first.

    Continuation lines of a value are marked, so that none of them can pass for another argument.

    Raises:
        ToolFailed: the command or program is too long to be reviewed.
    """
    runs = tool.shell or tool.effect == "execute"
    lines = []
    for name, value in sorted(arguments.items(), key=lambda item: len(text_of(item[1])) > _SHORT):
        text = value if isinstance(value, str) else text_of(value)
        if runs and len(text) > _READABLE:
            raise ToolFailed(
                f"'{tool.name}' was not run: a user has to approve it, and {len(text)} characters of {name} "
                "are too many to review. Write the code to a file first, or run less at once"
            )
        first, *rest = (text if runs else shortened(text, _SHOWN)).split("\n")
        lines.append("\n".join([f"{name}: {first}", *(f"    | {line}" for line in rest)]))
    return "\n".join(lines)


# --- permanent answers


MOST_ANSWERS = 1_000
"""Maximum number of stored answers per directory; the oldest are dropped."""


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A permanent permission.

    Attributes:
        tool: its name.
        sum: hash of the tool's identity.
        subject: the command or code; "" for the tool with any arguments.
        pattern: True if `subject` is a pattern, in which `*` matches any text.
        beyond: True if the answer allows no call, but an access outside of the sandbox (`subject`) by the tool's
            processes.
    """

    tool: str
    sum: str
    subject: str = ""
    pattern: bool = False
    beyond: bool = False


class _AnswersFile(msgspec.Struct, frozen=True, kw_only=True):
    directory: str
    allowed: tuple[StoredAnswer, ...] = ()


_decode_answers = json_decoder(_AnswersFile).decode


class StoredAnswers:
    """Stored answers of one directory.

    Blocks for reads of small files, only where the user would have to be asked otherwise.

    Each run has one, and most runs ask no question, so the paths are computed on first use.
    """

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        self._named = directory
        self._environ = environ

    @cached_property
    def directory(self) -> str:
        """The directory, with symbolic links resolved."""
        return os.path.realpath(self._named)

    @cached_property
    def _file(self) -> Path:
        name = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:32]
        return state_dir(self._environ) / "allowed" / f"{name}.json"

    def all(self) -> tuple[StoredAnswer, ...]:
        """Return all stored answers; empty if they cannot be read."""
        try:
            found = _decode_answers(self._file.read_bytes())
        except (OSError, msgspec.DecodeError):
            return ()
        # The file name is a shortened hash, so the directory itself must match too.
        return found.allowed if found.directory == self.directory else ()

    def allows(self, tool: Tool, arguments: Arguments) -> bool:
        """Return True if a stored answer covers the call."""
        named = [each for each in self.all() if each.tool == tool.name and not each.beyond]
        if not named:
            return False
        answer = _answer(tool, arguments)
        patterns = [each.subject for each in named if each.pattern and each.sum == answer.sum]
        return answer in named or any(self.covers(tool, arguments, each) for each in patterns)

    def covers(self, tool: Tool, arguments: Arguments, pattern: str) -> bool:
        """Return True if a pattern allows this call."""
        rule = PermissionRule(allow=(pattern,))
        return by_subject(rule, JudgedCall(tool, arguments, PathContext.of(self._named))) == "allow"

    def keep(self, tool: Tool, arguments: Arguments, pattern: str | None = None) -> None:
        """Store that the user permanently allows this call, or with `pattern` all calls that match it.

        Raises:
            ConfigError: the file cannot be written.
        """
        own = _answer(tool, arguments)
        if pattern is not None and pattern != default_pattern(tool, arguments):
            own = msgspec.structs.replace(own, subject=pattern, pattern=True)
        others = (each for each in self.all() if _key_of_answer(each) != _key_of_answer(own))
        self._write((*others, own)[-MOST_ANSWERS:])

    def beyond(self, tool: str, sum: str) -> list[str]:
        """Return the permanently allowed accesses outside of the sandbox; `sum` is the hash of the current program."""
        return [each.subject for each in self.all() if (each.tool, each.sum, each.beyond) == (tool, sum, True)]

    def add(self, tool: str, sum: str, what: str) -> None:
        """Permanently allow processes of a tool, in this directory, the access `what` outside of the sandbox.

        The permission lapses when the tool's program changes: it holds for the program with the hash `sum`.

        Raises:
            ConfigError: the file cannot be written.
        """
        own = StoredAnswer(tool=tool, sum=sum, subject=what, beyond=True)
        self._write((*(each for each in self.all() if each != own), own)[-MOST_ANSWERS:])

    def forget(self, tool: str | None = None) -> int:
        """Delete the answers of one tool or of all, and return their number.

        Raises:
            ConfigError: the file cannot be written.
        """
        before = self.all()
        after = tuple(each for each in before if tool is not None and each.tool != tool)
        if after != before:
            self._write(after)
        return len(before) - len(after)

    def _write(self, allowed: tuple[StoredAnswer, ...]) -> None:
        try:
            private_directory(self._file.parent)
            data = msgspec.json.encode(_AnswersFile(directory=self.directory, allowed=allowed))
            write_whole(self._file, data, private=True)
        except OSError as error:
            why = error.strerror or error
            raise ConfigError(f"permanent approvals can't be written to {self._file}: {why}") from error


_LONGEST_PATTERN = 500
"""Maximum characters of a command that a person can edit in one line."""


def default_pattern(tool: Tool, arguments: Arguments) -> str:
    """Return the text that the question shows as the pattern of the answer `always`.

    The command or code for a built-in tool that runs it, "" if that cannot be edited in one line; `*` for other tools.
    """
    if not _runs(tool):
        return "*"
    subject = _answer(tool, arguments).subject
    return subject if subject.isprintable() and len(subject) <= _LONGEST_PATTERN else ""


def _key_of_answer(answered: StoredAnswer) -> tuple[str, str, bool, bool]:
    return answered.tool, answered.subject, answered.pattern, answered.beyond


def _runs(tool: Tool) -> bool:
    return tool.shell or (tool.effect == "execute" and tool.origin == "builtin")


def _answer(tool: Tool, arguments: Arguments) -> StoredAnswer:
    subject = str(arguments.get(tool.subject) or "") if _runs(tool) else ""
    return StoredAnswer(tool=tool.name, sum=_identity_hash(tool), subject=subject)


def _identity_hash(tool: Tool) -> str:
    """Return the hash of a tool's identity."""
    parts = [tool.origin.encode(), tool.definition.encode(), msgspec.json.encode(tool.spec.parameters, order="sorted")]
    if tool.file is not None:
        try:
            parts.append(tool.file.read_bytes())
        except OSError as error:
            # An unreadable file has another identity than any readable content.
            parts.append(repr(error).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()
