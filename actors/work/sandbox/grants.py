"""What a person lets the processes of a run do beyond their sandbox: reach a host, write in a directory.

The question goes to the root as those of permissions do: `yes` for this process, `run` for all that this tool does in
the run, `always` for good in this directory. Rules (`host:NAME` in permissions) come before any question. `--yes` is no
answer to these: a run that nobody watches is what a sandbox is for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Protocol

import msgspec
import trio

from ....protocol.errors import ConfigError, NobodyToAsk, Saturated
from ....protocol.events import Warned
from ....protocol.kernel.questions import Question
from ....protocol.permissions import Verdict
from ....supervisors.escalation import remembers
from ..call_clock import current as call_clock
from .hosts import meant, named, shown

if TYPE_CHECKING:
    from ....supervisors import Actor
    from .proxy import Client

OPTIONS = ("yes", "run", "always", "no")
RULE = "`yes` this once, `run` for the rest of the run, `always` in this directory for good; any other answer is a no"
WITHOUT = ("yes", "run", "no")
RULE_WITHOUT = "`yes` this once, `run` for the rest of the run; any other answer is a no"


REACH, WRITE = "reach ", "write "
"""How what is allowed begins."""


class NotAdmitted(Exception):
    """A process may not do it. The text says why."""


class Who(msgspec.Struct, frozen=True):
    """Whose process it is.

    Attributes:
        name: of the tool, the script or the server.
        sum: of its program, as far as that is a file: what was allowed to another one is not allowed to this.
    """

    name: str
    sum: str = ""


class HostRules(Protocol):
    """What the user's rules say of hosts."""

    def of_host(self, host: str, port: int) -> tuple[Verdict, str] | None:
        """The verdict, and the pattern that says so; None for nothing."""


class Kept(Protocol):
    """What was allowed for good in the run's directory."""

    def beyond(self, tool: str, sum: str) -> list[str]:
        """What this tool may do."""

    def add(self, tool: str, sum: str, what: str) -> None:
        """From now on it may do this as well."""


class Grants:
    """See the module.

    Args:
        rules: of the user; None for none.
        kept: None where nothing can be allowed for good.
    """

    def __init__(self, rules: HostRules | None, kept: Kept | None) -> None:
        self._rules = rules
        self._kept = kept
        self._of_run: defaultdict[Who, list[str]] = defaultdict(list)
        self._asking: defaultdict[tuple[Who, str], trio.Lock] = defaultdict(trio.Lock)

    def writes(self, who: Who) -> tuple[str, ...]:
        """The directories that it may write in besides. Reads a small file."""
        return tuple(what.removeprefix(WRITE) for what in self._all(who) if what.startswith(WRITE))

    async def may_reach(self, me: Actor, client: Client, listed: Iterable[str], host: str, port: int) -> bool:
        """Whether a private address will do; asks a person on behalf of `me` if need be.

        Args:
            listed: the hosts that the process may reach anyway.

        Raises:
            NotAdmitted: it may not be reached.
        """
        listed = tuple(listed)
        said, pattern = (None if self._rules is None else self._rules.of_host(host, port)) or (None, "")
        if said == "deny":
            raise NotAdmitted(f"permissions deny {shown(host, port)}")
        if said == "allow":
            return not pattern.startswith("*")
        if said is None and meant(listed, host, port):
            return named(listed, host, port)
        name = shown(host, port)
        async with self._asking[client.who, name]:
            if name in client.refused:
                raise NotAdmitted(client.refused[name])
            if name not in client.once and not self.has(client.who, REACH + name):
                text = f"Let {client.who.name} reach {name}?{await _inside(host, port)}"
                with nullcontext() if client.clock is None else client.clock.stopped():
                    said_so = await self.asked(me, client.who, REACH + name, text)
                if said_so == "yes":
                    client.once.add(name)
        return True

    async def once(self, me: Actor, who: Who, what: str, text: str) -> None:
        """Have a person asked unless it was granted.

        Raises:
            NotAdmitted: a no, or nobody is there.
        """
        async with self._asking[who, what]:
            if not self.has(who, what):
                await self.asked(me, who, what, text)

    async def asked(self, me: Actor, who: Who, what: str, text: str) -> str:
        """What a person says: `yes` or `run`.

        Raises:
            NotAdmitted: a no, or nobody is there.
        """
        token = remembers.set(None)  # what is done again in another life of the run is asked again there
        clock = call_clock.get()
        try:
            question = Question(
                id=me.root.questions.new_id(),
                actor="",
                kind="choice",
                text=text,
                options=WITHOUT if self._kept is None else OPTIONS,
                rule=RULE_WITHOUT if self._kept is None else RULE,
                permission=who.name,
            )
            with nullcontext() if clock is None else clock.stopped():
                answer = str((await me.ask_person(question)).value).strip()
        except NobodyToAsk:
            raise NotAdmitted("nobody is there to be asked") from None
        except Saturated as error:
            raise NotAdmitted(str(error)) from error
        finally:
            remembers.reset(token)
        said = answer.lower()
        if said in ("run", "always"):
            self._of_run[who].append(what)
            if said == "always" and self._kept is not None:
                try:
                    self._kept.add(who.name, who.sum, what)
                except ConfigError as error:
                    me.emit(Warned(code="not_kept", message=str(error)))
            return "run"
        if said in ("yes", "y"):
            return "yes"
        why = "" if said in ("no", "n", "") else f": {answer}"
        raise NotAdmitted(f"the user refused{why}")

    def has(self, who: Who, what: str) -> bool:
        """Whether this was allowed, for the run or for good."""
        return what in self._all(who)

    def _all(self, who: Who) -> list[str]:
        kept = [] if self._kept is None else self._kept.beyond(who.name, who.sum)
        return [*self._of_run[who], *kept]


async def _inside(host: str, port: int) -> str:
    """What a person has to know of where a name leads to.

    Raises:
        NotAdmitted: nobody may go there.
    """
    from ...io.http import guarded  # the proxy, which asks this, has it

    found = [host] if guarded.meant(host) else await guarded.looked_up(host, port)
    if any(map(guarded.is_metadata, found)):
        raise NotAdmitted(f"'{host}' leads to an address where machines keep their credentials; nothing may go there")
    inside = ", ".join(each for each in found if guarded.is_private(each))
    return f"\nIt is on this machine or in a private network: {inside}" if inside else ""
