"""Grants: permissions beyond the sandbox that a user gives to processes of a run, such as a host or a directory.

The question goes to the root, as permission questions do. Answers: `yes` for this process, `run` for all uses of this
tool in the run, `always` permanently in this directory. `always: *.example.com` stores a pattern: for hosts as in
rules, for variables a name with `*`. A pattern must match the requested name, and `*` alone is refused.

Rules (`host:NAME` in permissions) take precedence over questions. `--yes` does not answer these questions: an
unattended run is the case that a sandbox exists for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, final

import msgspec
import trio

from ....protocol.errors import ConfigError, NobodyToAsk, Saturated
from ....protocol.events import Warned
from ....protocol.kernel.questions import Question, pattern_of
from ....protocol.permissions import Verdict
from ....supervisors.escalation import remembers
from ..call_clock import current as call_clock
from .hosts import WEB, host_and_port, matches_host, named, split_host

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ..call_clock import Clock

OPTIONS = ("yes", "run", "always", "no")
RULE = (
    "`yes` allows it once, `run` for the rest of the run, `always` in this directory permanently; any other "
    "answer refuses it"
)
WITHOUT = ("yes", "run", "no")
RULE_WITHOUT = "`yes` allows it once, `run` for the rest of the run; any other answer refuses it"


PATTERN_TRIES = 5
"""Attempts to get an answer whose pattern matches the requested name."""

REACH, WRITE, HAVE = "reach ", "write ", "have "
"""Prefixes of grant texts, by kind."""

UNNAMED = tuple(f"unnamed-host-that-nobody-has.{domain}" for domain in ("invalid", "com", "net", "org", "io"))
"""Hosts that no specific rule matches: a rule that allows one allows all hosts, or a whole top-level domain."""


class NotAdmitted(Exception):
    """Refusal of a grant; the text is the reason."""


class Who(msgspec.Struct, frozen=True):
    """Identity of the program that a grant belongs to.

    Attributes:
        name: name of the tool, the script or the server.
        sum: hash of its program, if that is a file. A changed program does not inherit the grants.
    """

    name: str
    sum: str = ""


@final
class ProxyClient:
    """Process that connects to the proxy.

    Attributes:
        who: program that the process executes.
        once: hosts that the user has allowed for this process.
        refused: hosts that it was refused, with the reasons.
        url: URL of the proxy with this process's password.
        clock: clock of the call that the process works for; it pauses while the user is asked.
    """

    def __init__(self, who: Who, url: str, clock: Clock | None) -> None:
        self.who = who
        self.url = url
        self.clock = clock
        self.once: set[str] = set()
        self.refused: dict[str, str] = {}


class HostRules(Protocol):
    """The user's permission rules for hosts."""

    def of_host(self, host: str, port: int) -> tuple[Verdict, str] | None:
        """Return the verdict and the pattern that decides it; None if no rule matches."""


class PermanentGrants(Protocol):
    """Permanent grants stored for the run's directory."""

    def beyond(self, tool: str, sum: str) -> list[str]:
        """Return the grants of this tool, for its program with this hash."""

    def add(self, tool: str, sum: str, what: str) -> None:
        """Store another grant for this tool, for its program with this hash.

        Raises:
            ConfigError: it can't be stored.
        """


class Grants:
    """Grants of a run, from rules, from the store of permanent grants, and from the user's answers.

    Args:
        rules: the user's host rules; None for none.
        kept: store of permanent grants; None if the run has no such store.

    Attributes:
        on_reach: called with each host that a process of the run is allowed to reach, before it connects; "*" for all
            hosts.
    """

    def __init__(self, rules: HostRules | None, kept: PermanentGrants | None) -> None:
        self._rules = rules
        self._kept = kept
        self.on_reach: Callable[[str], None] = lambda host: None  # noqa: ARG005 - nothing listens
        self._of_run: defaultdict[Who, list[str]] = defaultdict(list)

    @cached_property
    def _asking(self) -> defaultdict[tuple[Who, str], trio.Lock]:
        # One lock per program and grant, so that concurrent requests for the same grant ask once.
        return defaultdict(trio.Lock)

    def writes(self, who: Who) -> tuple[str, ...]:
        """Return the additional directories that the program may write in. Reads a small file."""
        return tuple(what.removeprefix(WRITE) for what in self._all(who) if what.startswith(WRITE))

    def is_unbounded(self, name: str) -> bool:
        """Return True if processes of this name can reach hosts that the user has not named: a rule or a grant allows
        all."""
        rules = self._rules
        said = () if rules is None else (rules.of_host(host, WEB[-1]) for host in UNNAMED)
        granted = any(REACH + "*" in what for who, what in self._of_run.items() if who.name == name)
        return granted or any(each is not None and each[0] == "allow" for each in said)

    def approves(self, host: str, port: int) -> bool:
        """Return True if the user's rules allow this host, and do not allow all hosts or a top-level domain anyway."""
        said = None if self._rules is None else self._rules.of_host(host, port)
        return said is not None and said[0] == "allow" and not self.is_unbounded("")

    async def may_reach(self, me: Actor, client: ProxyClient, listed: Iterable[str], host: str, port: int) -> bool:
        """Return True if the host may resolve to a private address. Asks the user on behalf of `me` if necessary.

        Args:
            listed: hosts that the process may reach without a question.

        Raises:
            NotAdmitted: the host may not be reached.
        """
        listed = tuple(listed)
        said, pattern = (None if self._rules is None else self._rules.of_host(host, port)) or (None, "")
        if said == "deny":
            raise NotAdmitted(f"permissions deny {host_and_port(host, port)}")
        name = host_and_port(host, port)
        if said == "allow":
            self.on_reach(name)
            return not pattern.startswith("*")
        if said is None and matches_host(listed, host, port):
            self.on_reach(name)
            return named(listed, host, port)
        # A program opens several connections to one host at a time. All but the first wait here for its answer.
        async with self._asking[client.who, name]:
            if name in client.refused:
                raise NotAdmitted(client.refused[name])
            if name in client.once or self._names(client.who, REACH + name):
                self.on_reach(name)
                return True
            inside = await _inside(host, port)
            if not inside and self.has(client.who, REACH + name):
                self.on_reach(name)
                return False  # a pattern never grants a private address
            text = f"Let {client.who.name} reach {name}?{inside}"
            with nullcontext() if client.clock is None else client.clock.stopped():
                try:
                    said_so = await self.asked(me, client.who, REACH + name, text)
                except NotAdmitted as refusal:
                    client.refused[name] = str(refusal)  # before the lock is free: those who wait must not ask again
                    raise
            if said_so == "yes":
                client.once.add(name)
        self.on_reach(name)
        return True

    async def once(self, me: Actor, who: Who, what: str, text: str) -> None:
        """Ask the user unless this was granted before.

        Raises:
            NotAdmitted: the user refuses or can't be asked, or too many questions are open.
        """
        async with self._asking[who, what]:
            if not self.has(who, what):
                await self.asked(me, who, what, text)
        if what.startswith(REACH):
            self.on_reach(what.removeprefix(REACH))

    async def asked(self, me: Actor, who: Who, what: str, text: str) -> str:
        """Ask the user, even if this was granted before.

        Return `yes` for this process alone, and `run` for a grant that is stored for the run or permanently.

        Raises:
            NotAdmitted: the user refuses or can't be asked, or too many questions are open.
        """
        token = remembers.set(None)  # a later incarnation of the run executes the process again, so it asks again
        clock = call_clock.get()
        question = Question(
            id=me.root.questions.new_id(),
            actor="",
            kind="choice",
            text=text,
            options=WITHOUT if self._kept is None else OPTIONS,
            rule=RULE_WITHOUT if self._kept is None else RULE,
            permission=who.name,
            pattern=None if self._kept is None else _kind_and_name(what)[1] or None,
        )
        try:
            with nullcontext() if clock is None else clock.stopped():
                answer, pattern = await _answered(me, question, what)
        except NobodyToAsk:
            raise NotAdmitted("no user can be asked") from None
        except Saturated as error:
            raise NotAdmitted(str(error)) from error
        finally:
            remembers.reset(token)
        said = answer.lower()
        if pattern is not None or said in ("run", "always"):
            granted = what if pattern is None else _kind_and_name(what)[0] + pattern
            self._of_run[who].append(granted)
            if said != "run" and self._kept is not None:
                try:
                    self._kept.add(who.name, who.sum, granted)
                except ConfigError as error:
                    me.emit(Warned(code="not_kept", message=str(error)))
            return "run"
        if said in ("yes", "y"):
            return "yes"
        why = "" if said in ("no", "n", "") else f": {answer}"
        raise NotAdmitted(f"the user refused{why}")

    def has(self, who: Who, what: str) -> bool:
        """Return True if this was granted, for the run or permanently."""
        return self._names(who, what) or any(means_grant(granted, what) for granted in self._all(who))

    def _names(self, who: Who, what: str) -> bool:
        """Return True if this was granted by its exact name, not by a pattern."""
        return what in self._all(who)

    def _all(self, who: Who) -> list[str]:
        kept = [] if self._kept is None else self._kept.beyond(who.name, who.sum)
        return [*self._of_run[who], *kept]


_KINDS = (REACH, WRITE, HAVE)


def _kind_and_name(what: str) -> tuple[str, str]:
    """Split a grant text into its kind and the host, directory or variable; ("", "") for a text without a kind."""
    kind = next((each for each in _KINDS if what.startswith(each)), None)
    return (kind, what.removeprefix(kind)) if kind else ("", "")


def means_grant(granted: str, what: str) -> bool:
    """Return True if a grant with a pattern matches this host or variable. The pattern `*` alone matches none."""
    kind, name = _kind_and_name(what)
    if "*" not in granted or not granted.startswith(kind) or name == "*":
        return False
    pattern = granted.removeprefix(kind)
    if pattern == "*":  # the whole network, which is a separate question
        return False
    if kind == REACH:
        host, port = split_host(name)
        return matches_host((pattern,), host, port)
    return kind == HAVE and fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]"))


async def _answered(me: Actor, question: Question, what: str) -> tuple[str, str | None]:
    """Return the answer and the pattern in it. Asks again until the pattern matches the requested name."""
    kind, name = _kind_and_name(what)
    for _ in range(PATTERN_TRIES):
        answer = str((await me.ask_person(question)).value).strip()
        pattern = pattern_of(question, answer)
        if pattern is None or pattern == name or means_grant(kind + pattern, what):
            return answer, pattern
        wanted = {REACH: f"`{name}` or `*.DOMAIN`", HAVE: f"`{name}` or a name with `*`"}.get(
            kind, f"the name `{name}` itself"
        )
        problem = f"'{pattern[:100]}' does not match {name}: enter {wanted}"
        question = msgspec.structs.replace(question, id=me.root.questions.new_id(), problem=problem)
    return problem, None


async def _inside(host: str, port: int) -> str:
    """Return a note for the question if a host has a private address; "" otherwise.

    Raises:
        NotAdmitted: the host has a metadata address of a cloud.
    """
    from ...io.http import guarded  # already imported by the proxy, which calls this

    found = [host] if guarded.embedded_addresses(host) else await guarded.resolve(host, port)
    if any(map(guarded.is_metadata, found)):
        raise NotAdmitted(
            f"'{host}' has an address that serves the credentials of cloud machines, and can't be allowed"
        )
    inside = ", ".join(each for each in found if guarded.is_private(each))
    return f"\nThe host is this machine or in a private network: {inside}" if inside else ""
