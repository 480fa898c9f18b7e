"""The sandbox of a run: what its user has said about the processes that its agents start.

What all are held to is put together with what is said of a tool or a server by its name (`place`). What the run's
processes share beyond that is one way out, opened when the first of them needs it (`door`), and what a person has
granted. Where no backend works, a person is asked about each process that should be held.
"""

from __future__ import annotations

import copy
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, final

import msgspec
import trio

from ....protocol.sandbox import PROFILES, Network, OwnSandbox, Profile, SandboxRules, UserSandbox
from ...io.directories import cache_dir
from ...io.imports import imported
from .grants import Grants
from .place import PROGRAMS, Nature, Place

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ...io.temporary import LazyDirectory
    from .door import Door
    from .held import Held
    from .proxy import Client

HOLDING = ".actors.work.sandbox.holding"
"""What a run needs that starts a process."""

FETCHES = re.compile(r"(fetch_url|web_search|search)_\w+|get_current_weather")
"""Tool files with these names are there to reach the web: all of it but for private addresses."""

_UNSAFE = re.compile(r"[^\w.-]")


@final
class Sandbox:
    """See the module.

    Args:
        rules: those of the user.
        here: the run's directory.
        config_dir: where agents and settings live.
        environ: ours.
        temporary: the directory that the run's processes have as `/tmp`; None: each has one of its own.
        roots: further directories in which the run works.
        grants: what a person lets them do beyond.
        narrowed: what files of agents and nodes say, which can only take away.
    """

    def __init__(
        self,
        rules: UserSandbox,
        *,
        here: Path,
        config_dir: Path,
        environ: Mapping[str, str],
        temporary: LazyDirectory | None,
        grants: Grants,
        roots: Iterable[Path] = (),
        narrowed: tuple[OwnSandbox, ...] = (),
    ) -> None:
        self._narrowed = narrowed
        self._rules = rules
        self._here = str(here)
        self._config_dir = str(config_dir)
        self._home = environ.get("HOME") or str(Path.home())
        self._roots = tuple(map(str, roots))
        self._shared = Shared(grants, environ, temporary)

    def works_under(self, me: Actor) -> None:
        """Whose way out is to end with `me`, the run's own actor."""
        self._shared.top = me

    @property
    def profile(self) -> Profile:
        """What counts for all of which nothing else is said."""
        assert self._rules.profile is not None  # `rules_of` has seen to it
        return self._rules.profile

    def narrower(self, own: OwnSandbox) -> Sandbox:
        """The same with less, as a file of an agent says it."""
        made = copy.copy(self)
        made._narrowed = (*self._narrowed, own)  # noqa: SLF001 - a copy of our own
        return made

    @property
    def narrowed(self) -> tuple[OwnSandbox, ...]:
        """What files of agents have taken away."""
        return self._narrowed

    def of_tool(self, name: str) -> Place | None:
        """How the processes of a tool, or of a script that is called so, are held; None for not at all."""
        rules = _put_together(self._rules, _named(self._rules.tools, name))
        rules = msgspec.structs.replace(rules, write=(*rules.write, *self._roots))
        usual: Network = ("*",) if FETCHES.fullmatch(name) else "ask"
        return self._place(
            rules,
            usual,
            self._caches("workspaces", hashlib.sha256(os.fsencode(self._here)).hexdigest()[:16]),
        )

    def has_network(self, tool: str) -> bool:
        """Whether the processes of a tool reach a network."""
        place = self.of_tool(tool)
        return place is None or place.profile == "open" or place.network != "off"

    def of_server(self, name: str, named: Iterable[str] = ()) -> Place | None:
        """How an MCP server's process is held; None for not at all.

        Args:
            named: words of its entry in the user's own file: the paths among them are meant for it.
        """
        rules = _put_together(self._rules, _named(self._rules.servers, name))
        place = self._place(rules, "on", self._caches("servers", _UNSAFE.sub("_", name)))
        if place is None:
            return None
        return msgspec.structs.replace(place, named=_paths_in(named, self._here))

    def why_unchangeable(self, paths: Iterable[str]) -> str:
        """Return why no process may change a path, in any of its forms; "" if there is no reason, or no sandbox."""
        if self.profile in ("open", "off") and not self._narrowed:
            return ""
        from .unchangeable import why_unchangeable

        shown = [path.replace("~", self._home, 1) if path.startswith("~/") else path for path in self._rules.show]
        return why_unchangeable(
            paths,
            home=Path(self._home),
            config_dir=Path(self._config_dir),
            environ=self._shared.environ,
            shown=[os.path.join(self._here, path) for path in shown],
            workspaces=(self._here, *self._roots),
        )

    async def held(self, me: Actor, nature: Nature) -> Held | None:
        """How a process is held that `me` is about to start; None if it is not.

        Raises:
            ProcessError: it would have to be held, and can't be.
        """
        place = self.of_tool(nature.name)
        if place is None:
            return None
        await imported(HOLDING)
        from .holding import hold

        return await hold(me, place, nature, self._shared, self._admits)

    async def _admits(self, me: Actor, client: Client, host: str, port: int) -> bool:
        place = self.of_tool(client.who.name)
        listed = place.network if place is not None and isinstance(place.network, tuple) else ()
        return await self._shared.grants.may_reach(me, client, listed, host, port)

    @property
    def has_files(self) -> bool:
        """Whether there is something to `remove`."""
        return self._shared.temporary is not None and self._shared.temporary.is_made

    def remove(self) -> None:
        """Remove the files of the run, which is over. Blocks."""
        if self._shared.temporary is not None:
            self._shared.temporary.remove()

    def _caches(self, *folders: str) -> str:
        return str(cache_dir(self._shared.environ).joinpath(*folders))

    def _place(self, rules: SandboxRules, usual: Network, caches: str) -> Place | None:
        for own in self._narrowed:
            rules = _narrowed(rules, own)
        if rules.profile == "off":
            return None
        network = rules.network or usual
        return Place(
            rules=rules,
            here=self._here,
            config_dir=self._config_dir,
            home=self._home,
            network=() if network == "ask" else network,
            caches=caches,
        )


@final
class Shared:
    """What a run's processes share, those among them that an agent's file holds to less.

    Attributes:
        grants: what a person lets them do beyond.
        environ: ours.
        temporary: the directory that they have as `/tmp`.
        door: their way out, once one of them has needed it; `opening` is held while it is opened.
        top: the actor that it ends with.
    """

    def __init__(self, grants: Grants, environ: Mapping[str, str], temporary: LazyDirectory | None) -> None:
        self.grants = grants
        self.environ = environ
        self.temporary = temporary
        self.opening = trio.Lock()
        self.top: Actor | None = None
        self.door: Door | None = None


def _paths_in(words: Iterable[str], here: str) -> tuple[str, ...]:
    """Return the absolute paths among a server's words, whether or not they exist.

    They are part of the key that the server is shared by, so the files must not be looked at here: a server that makes
    its database would have another key from then on, and would be started twice. `held` resolves them at each start.
    """
    paths = ((word, os.path.join(here, os.path.expanduser(word.rpartition("=")[2]))) for word in words)
    return tuple(path for word, path in paths if "/" in word and "://" not in word and not path.endswith(PROGRAMS))


def before_any_run(said: Profile | UserSandbox, config_dir: Path, environ: Mapping[str, str]) -> Sandbox:
    """What holds the servers that are started before any run wants them, by what the settings say."""
    return Sandbox(
        rules_of(said, None),
        here=Path.cwd(),
        config_dir=config_dir,
        environ=environ,
        temporary=None,
        grants=Grants(None, None),
    )


def rules_of(settings: Profile | UserSandbox, flag: Profile | None) -> UserSandbox:
    """What the settings and a flag say together; the flag says the profile of everything that has none of its own.

    A block that names no profile means `workspace`.
    """
    rules = UserSandbox(profile=settings) if isinstance(settings, str) else settings
    return msgspec.structs.replace(rules, profile=flag or rules.profile or "workspace")


def is_off(rules: UserSandbox) -> bool:
    """Whether nothing at all is held."""
    named = (*rules.tools.values(), *rules.servers.values())
    return rules.profile == "off" and all(each.profile in (None, "off") for each in named)


def _narrowed(rules: SandboxRules, own: OwnSandbox) -> SandboxRules:
    """The rules with what a file takes away: of two profiles the stricter one."""
    assert rules.profile is not None  # `rules_of` has seen to it
    stricter = min(rules.profile, own.profile or rules.profile, key=PROFILES.index)
    if stricter == "off" and (own.hide or own.network):
        stricter = "workspace"  # something is to be held, so something holds it
    return msgspec.structs.replace(
        rules, profile=stricter, hide=(*rules.hide, *own.hide), network=own.network or rules.network
    )


def _named(rules: Mapping[str, SandboxRules], name: str) -> SandboxRules | None:
    """What is said of a name: the full name comes before the longest pattern."""
    if name in rules:
        return rules[name]
    found = [pattern for pattern in rules if fnmatchcase(name, pattern)]
    return rules[max(found, key=len)] if found else None


def _put_together(all: SandboxRules, own: SandboxRules | None) -> SandboxRules:
    """What counts for something of which more is said than of all: its own profile and network, and more paths."""
    if own is None:
        return SandboxRules(**{name: getattr(all, name) for name in SandboxRules.__struct_fields__})
    return SandboxRules(
        profile=own.profile or all.profile,
        network=own.network or all.network,
        write=(*all.write, *own.write),
        hide=(*all.hide, *own.hide),
        show=(*all.show, *own.show),
        env=(*all.env, *own.env),
    )
