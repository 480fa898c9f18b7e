"""Which tool calls may go ahead: `allow`, `ask` a person, or `deny`.

Three voices, in this order:

1. The user: `--allow TOOL`, then `permissions` of the configuration directory's config.yaml.
2. Where the user says nothing, what the tool does: our own tools that write, execute or send `ask`, all else goes
   ahead. The tools of an agent's own file and Python functions are part of the agent that the user chose to run.
   A global file that is called as one of ours that sends asks as that does.
3. The agent's own file, which can only be stricter: a file from a stranger can't give itself leave. What it denies, it
   denies to all that works below it as well (`below`), at any depth.

`--yes` answers every `ask` with yes, and so does, for one tool and one run, a person who says `run`, and for good one
who says `always` (`kept_answers`; where nothing can be kept, for the run); none of these changes a `deny`. `ask` is a
question to a person (see `supervisors.escalation`) that no model can answer; without a person, the call is refused and
the model learns why. What is to be run is shown whole, or not run.

What no process in the run's sandbox may change (`sandbox.unchangeable`: git's directory, what the user's programs start
by), our own tools change only after a question of its own: neither `--yes` nor `--allow`, a rule, a hook, or an earlier
answer takes its place.

Rules may also name where calls go, `server:github` and `host:*.example.com` (`rules`).

Patterns are matched with the call's subject: the command, the path, the URL, or else the JSON text of all arguments.
`*` stands for any text, `?` for one character.

Paths are judged where the run works, wherever the process stands; what patterns mean of them is in `path_rules`. What
a pattern denies to `fs_cat`, `fs_read` or `fs_grep` is denied to every tool that shows files (`Tool.reads`), since it
would be the same file. Of a tool without a subject a `deny` or an `ask` is also matched with every text among its
arguments, as it is and as a path.

Of a shell command each simple command in it is judged (`shell_rules`): `git status*` does not allow
`git status; rm -rf .`, and `deny: "rm *"` means `X=1 sudo rm -rf .` as well. That keeps an honest model from mishaps;
it is no sandbox: what a program does that is run, a script, an interpreter, nobody reads.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ....protocol.errors import NobodyToAsk, ToolFailed
from ....protocol.kernel.questions import Question
from ....protocol.permissions import PermissionRule, Verdict, denies
from ....protocol.permissions import Permissions as Rules
from ..journal.scope import here as current_scope
from ..playback import playback as play
from ..sandbox.current import current as current_sandbox
from .kept_answers import KeptAnswers
from .path_rules import Bar, FileAccess, Here, PathRule, weighed
from .rules import HOST, Call, by_subject, of_host, places, rule_for, ruled, stricter
from .tool import Arguments, Tool, shortened, text_of

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ....supervisors.escalation import Desk

READERS = ("fs_cat", "fs_read", "fs_grep")
"""Tools that show what is in files: a path that a pattern bars to one of them is barred to all that show files."""

_DENY: frozenset[Verdict] = frozenset(("deny",))
_NOT_ALLOW: frozenset[Verdict] = frozenset(("deny", "ask"))

_SHOWN = 4_000
"""Characters of an argument of a tool that runs nothing; its middle is left out, and said to be."""

_READABLE = 16_000
"""Characters of a command or a program that a person may be asked about."""

_SHORT = 200

_OPTIONS = ("yes", "always", "no")
_RULE = "`always` allows the tool for the rest of the run; any other answer is a no, and the model reads it"
_OPTIONS_KEPT = ("yes", "run", "always", "no")
_RULE_KEPT = (
    "`run` allows the tool for the rest of the run, `always` this command, or else the tool, in this directory for "
    "good; any other answer is a no, and the model reads it"
)


class Permissions:
    """What a run's user allows.

    Args:
        rules: `permissions` of the settings.
        allowed: names given with `--allow`.
        yes: whether every question is answered with yes.
        once: there is but one call, made by a person: there is no offer to allow further ones.
        here: the run's directory; None for the process's own.
        kept: what a person has allowed for good; None where nothing can be.
    """

    def __init__(
        self,
        rules: Rules | None = None,
        *,
        allowed: Iterable[str] = (),
        yes: bool = False,
        once: bool = False,
        here: Path | None = None,
        kept: KeptAnswers | None = None,
    ) -> None:
        self._rules = rules or {}
        self._allowed = frozenset(allowed)
        self._always: set[str] = set()
        self._asking: list[_Asking] = []
        self._once = once
        self._here = here
        self._kept = kept
        self._ceilings: tuple[Rules, ...] = ()
        self.yes = yes

    def below(self, rules: Rules) -> Permissions:
        """The same for what works below an agent with these rules: what they deny is denied there too.

        `always` and the questions under way are those of the whole run.
        """
        if not any(denies(rule) for rule in rules.values()):
            return self
        lower = copy.copy(self)
        lower._ceilings = (*self._ceilings, rules)  # noqa: SLF001 - a copy of our own
        return lower

    @property
    def denied(self) -> tuple[Rules, ...]:
        """The rules of all that stand above, of which what they deny counts."""
        return self._ceilings

    def verdict(self, tool: Tool, arguments: Arguments, own: Rules | None = None) -> Verdict:
        """What is to become of a call; `own` are the rules of the agent that makes it."""
        return self._judged(tool, arguments, own)[0]

    def _judged(self, tool: Tool, arguments: Arguments, own: Rules | None) -> tuple[Verdict, FileAccess]:
        """The verdict, and what the call may show and touch if it goes ahead without a question."""
        harmless = _is_harmless(tool)
        if not self._rules and not own and not self._ceilings and harmless:
            return "allow", FileAccess()
        call = Call(tool, arguments, Here.of(self._here))
        said: Verdict | None = "allow" if self._allows(tool) else ruled(self._rules, call)
        if said is None:
            said = "allow" if harmless or tool.origin == "family" else "ask"
        said = stricter(said, ruled(own, call) if own else None)
        if any(ruled(rules, call) == "deny" for rules in self._ceilings):
            said = "deny"
        bars = tuple(self._bars(call, own)) if tool.reads or tool.run_within is not None else ()
        for bar in bars:
            if tool.subject == "path":
                found = bar.rule.verdict(call.forms, fold=call.fold)
                said = stricter(said, found if found in bar.verdicts else None)
        leads = call.forms[-1] if len(call.forms) > 1 else ""
        changes = tool.effect == "write" and tool.run_within is not None
        readers = tuple(self._readers(call, own)) if changes else ()
        judged = frozenset(call.forms)
        access = FileAccess(judged=judged, bars=bars, fold=call.fold, leads=leads, readers=readers)
        if self.yes or tool.name in self._always or (said == "ask" and self._keeps(tool, arguments)):
            return ("allow" if said == "ask" else said), _asked_about(access)
        return said, access

    def _bars(self, call: Call, own: Rules | None) -> Iterator[Bar]:
        """The patterns that hold for every file that the call comes across, each once."""
        voices = [] if self._allows(call.tool) else [(self._rules, _NOT_ALLOW)]
        voices += [(own, _NOT_ALLOW)] if own else []
        voices += [(rules, _DENY) for rules in self._ceilings]
        for rules, verdicts in voices:
            names = [call.names] if call.tool.subject == "path" else []
            names += [(name,) for name in READERS if call.tool.reads]
            found = [rule for each in names if isinstance(rule := rule_for(rules, each), PermissionRule)]
            for rule in dict.fromkeys(found):
                yield Bar(verdicts, PathRule.of(rule, call.here))

    def _readers(self, call: Call, own: Rules | None) -> Iterator[Bar]:
        """The patterns that deny showing what is in files, for a call that changes them."""
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
        """What rules say of a host that processes of the run want to reach, and the pattern that says so."""
        given: Rules = {name: "allow" for name in self._allowed if name.startswith(HOST)}
        rules = {**self._rules, **given}
        said = of_host(rules, host, port)
        denied = any((of_host(each, host, port) or ("", ""))[0] == "deny" for each in self._ceilings)
        return ("deny", "") if denied else said

    def explained(self, tool: Tool, arguments: Arguments, own: Rules | None = None) -> Explained:
        """The verdict, and who says what of the call, in the order in which they are heard."""
        call = Call(tool, arguments, Here.of(self._here))
        if self._allows(tool):
            reasons = [Reason(who="--allow", verdict="allow", rule=tool.name)]
        else:
            reasons = _reasons("config.yaml", self._rules, call)
        if all(reason.verdict is None for reason in reasons):
            does = f"our own tools that {tool.effect} ask" if tool.effect in ("write", "execute", "send") else ""
            verdict: Verdict = "allow" if _is_harmless(tool) or tool.origin == "family" else "ask"
            reasons.append(Reason(who="what the tool does", verdict=verdict, why=does if verdict == "ask" else ""))
        if own:
            reasons += _reasons("the agent's file", own, call)
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
        """Return what the call may show and touch, if it may go ahead; asks a person on behalf of `me` if need be.

        Args:
            hooked: what hooks say of it: `allow` it where a person would be asked, or `ask` one where none would be.

        Raises:
            ToolFailed: it may not; the text says why, for the model and for people reading along.
        """
        verdict, access = self._judged(tool, arguments, own)
        guard = self._guard(tool, access)
        if guard and verdict != "deny":
            diff = "" if tool.preview is None else await tool.preview(arguments, _asked_about(access))
            said = await self._ask(me, tool, arguments, own, access.leads, diff, guard)
            if said.lower() not in ("yes", "y"):
                from ..sandbox.unchangeable import refused

                raise refused(tool.name)
            return _asked_about(access)
        if hooked == "ask" and verdict == "allow" and not self.yes:
            verdict = "ask"
        elif hooked == "allow" and verdict == "ask":
            return _asked_about(access)
        if verdict == "allow":
            return access
        if verdict == "deny":
            raise ToolFailed(f"'{tool.name}' was not run: the permissions deny this call")
        diff = await _previewed(me, tool, arguments, access)
        if tool.name in self._always:  # said while the diff was made
            return _asked_about(access)
        said = await self._ask(me, tool, arguments, own, access.leads, diff)
        if said.lower() in ("run", "always"):
            if said.lower() == "always" and self._kept is not None:
                self._kept.keep(tool, arguments)
            else:
                self._always.add(tool.name)
            for each in list(self._asking):
                if each.whose.verdict(each.tool, each.arguments, each.own) == "allow":
                    each.agree(me.root.questions)
        elif said.lower() not in ("yes", "y"):
            why = "" if said.lower() in ("no", "n", "") else f": {said}"
            raise ToolFailed(f"'{tool.name}' was not run: the user refused{why}")
        return _asked_about(access)

    def _guard(self, tool: Tool, access: FileAccess) -> str:
        """Return why a call needs a question of its own: it would change what no process of the run may change."""
        sandbox = current_sandbox.get()
        if sandbox is None or tool.effect != "write" or tool.subject != "path" or self._once:
            return ""
        return sandbox.why_unchangeable(access.judged)

    async def _ask(
        self,
        me: Actor,
        tool: Tool,
        arguments: Arguments,
        own: Rules | None,
        leads: str,
        diff: str,
        guard: str = "",
    ) -> str:
        told = {tool.subject: arguments.get(tool.subject, "")} if diff else arguments
        shown = _shown(tool, {**told, "leads to": leads} if leads else told)
        question = Question(
            id="",
            actor=me.path,
            kind="choice",
            text=f"Allow {tool.name}?\n{shown}".rstrip()
            + (f"\n{guard}" if guard else "")
            + (f"\n{diff}" if diff else ""),
            diff=diff,
            options=("yes", "no") if self._once or guard else _OPTIONS if self._kept is None else _OPTIONS_KEPT,
            rule=None if self._once or guard else _RULE if self._kept is None else _RULE_KEPT,
            permission=tool.name,
        )
        asking = _Asking(self, tool, arguments, own, question)
        if not guard:
            self._asking.append(asking)
        try:
            answer = await me.ask_person(question)
        except NobodyToAsk:
            if guard:
                from ..sandbox.unchangeable import nobody_to_ask

                raise nobody_to_ask(tool.name, guard) from None
            raise ToolFailed(
                f"'{tool.name}' was not run: it needs a person's permission and nobody is there to give it "
                f"(--allow {tool.name} or --yes gives it beforehand, as does `permissions` in config.yaml)"
            ) from None
        finally:
            if not guard:
                self._asking.remove(asking)
        return str(answer.value).strip()


class _Asking:
    """A call that a person is asked about. Which id its question has, the desk decides, or what it is a part of."""

    def __init__(
        self, whose: Permissions, tool: Tool, arguments: Arguments, own: Rules | None, asked: Question
    ) -> None:
        self.whose, self.tool, self.arguments, self.own = whose, tool, arguments, own
        self._asked = asked

    def agree(self, desk: Desk) -> None:
        """It need not be asked any more."""
        for open in desk.open:
            if open.actor == self._asked.actor and open.text == self._asked.text:
                desk.answer(open.id, "yes", by="always")


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """What one voice says of a call.

    Attributes:
        who: `--allow`, `config.yaml`, `what the tool does`, `the agent's file`.
        verdict: None for nothing.
        rule: the name under which its rule stands.
        pattern: that decided; "" if none did.
        command: of a shell command, the part that is meant.
        why: what else did, in words.
    """

    who: str
    verdict: Verdict | None
    rule: str = ""
    pattern: str = ""
    command: str = ""
    why: str = ""


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a call, and why."""

    verdict: Verdict
    reasons: tuple[Reason, ...]


def _is_harmless(tool: Tool) -> bool:
    """Whether a call needs nobody's leave, as far as nobody says otherwise."""
    if tool.effect in ("none", "read") or tool.origin == "function":
        return True
    return tool.origin == "file" and tool.effect != "send"


def _reasons(who: str, rules: Rules, call: Call) -> list[Reason]:
    of_places = [
        Reason(who=who, verdict=by_subject(rule, call) if isinstance(rule, PermissionRule) else rule, rule=name)
        for name, rule in places(rules, call)
    ]
    rule = rule_for(rules, call.names)
    name = next((name for name, each in rules.items() if each is rule), "")
    if rule is None or isinstance(rule, str):
        return [Reason(who=who, verdict=rule, rule=name, why="" if rule else "no rule for this tool"), *of_places]
    if call.tool.shell:
        from .shell_rules import said

        return [
            Reason(who=who, verdict=s.verdict, rule=name, pattern=s.pattern, command=s.command, why=s.why)
            for s in said(weighed(rule), call.text)
        ]
    return [Reason(who=who, verdict=by_subject(rule, call), rule=name), *of_places]


async def _previewed(me: Actor, tool: Tool, arguments: Arguments, access: FileAccess) -> str:
    """The diff for the person who is asked.

    Raises:
        ToolFailed: the call cannot succeed, so that there is nothing to ask.
    """
    if tool.preview is None:
        return ""
    try:
        found = play.Preview(diff=await tool.preview(arguments, _asked_about(access)))
    except ToolFailed as failed:
        # A replay does not judge by the files of today: its call fails if the recorded one did.
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
    """What may be seen once a person has agreed to the call: what is asked for too."""
    return msgspec.structs.replace(access, bars=tuple(Bar(_DENY, bar.rule) for bar in access.bars))


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
