"""The sandbox of a run: what its user has said about the processes that its agents start.

What all are held to is put together with what is said of a tool or a server by its name (`place`). What the run's
processes share beyond that is one way out, opened when the first of them needs it (`door`), and what a person has
granted. Where no backend works, a person is asked about each process that should be held.
"""

from __future__ import annotations

import copy
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import msgspec
import trio

from ....protocol.errors import ProcessError
from ....protocol.sandbox import PROFILES, Network, OwnSandbox, Profile, SandboxRules, UserSandbox
from ...io.directories import cache_dir
from ..library import AGENTS
from .backends import Backend, backend, is_known
from .door import Door, open_door
from .grants import Grants
from .hosts import meant, named
from .place import WHOLE, Held, Place
from .policy import real
from .proxy import Client, NotAdmitted
from .variables import looks_secret, names_in, withheld

if TYPE_CHECKING:
    from ....supervisors import Actor


PROGRAMS = (".js", ".mjs", ".cjs", ".ts", ".py", ".sh", ".rb", ".jar", ".pyz")
"""What an entry of a server names of its own code, which it need not change."""

FETCHES = re.compile(r"(fetch_url|web_search|search)_\w+|get_current_weather")
"""Tool files with these names are there to reach the web: all of it but for private addresses."""

LIBRARY = AGENTS.parent
"""Where the programs are that came with callboard."""

_UNSAFE = re.compile(r"[^\w.-]")


@final
class Sandbox:
    """See the module.

    Args:
        rules: those of the user.
        here: the run's directory.
        config_dir: where agents and settings live.
        environ: ours.
        temporary: a directory that the run's processes have as `/tmp`, made when it is needed.
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
        temporary: Path,
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
        self._environ = environ
        self._grants = grants
        self._way_out = _WayOut()
        self.temporary = temporary

    def works_under(self, me: Actor) -> None:
        """Whose way out is to end with `me`, the run's own actor."""
        self._way_out.top = me

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

    def of_tool(self, name: str) -> Place | None:
        """How the processes of a tool, or of a script that is called so, are held; None for not at all."""
        rules = _put_together(self._rules, _named(self._rules.tools, name))
        rules = msgspec.structs.replace(rules, write=(*rules.write, *self._roots))
        usual: Network = ("*",) if FETCHES.fullmatch(name) else "ask"
        return self._place(rules, usual, str(self.temporary))

    def has_network(self, tool: str) -> bool:
        """Whether the processes of a tool reach a network."""
        place = self.of_tool(tool)
        return place is None or place.profile == "open" or place.network != "off"

    def of_server(self, name: str, named: Iterable[str] = ()) -> Place | None:
        """How an MCP server's process is held; None for not at all.

        Args:
            named: words of its entry in the user's own file: the paths among them are meant for it.
        """
        place = self._place(_put_together(self._rules, _named(self._rules.servers, name)), "on", "")
        if place is None:
            return None
        caches = cache_dir(self._environ) / "servers" / _UNSAFE.sub("_", name)
        return msgspec.structs.replace(place, caches=str(caches), named=_paths_in(named, self._here))

    async def held(self, me: Actor, name: str, **nature: Any) -> Held | None:
        """How a process of a tool, or of a script, is held that `me` is about to start; None for not at all.

        Args:
            nature: see `Held`; and `file` as in `current.sandboxed`.

        Raises:
            ProcessError: it would have to be held, and can't be.
        """
        place = self.of_tool(name)
        if place is None:
            return None
        ours = is_ours(nature.get("file"))
        if isinstance(place.network, tuple) and ours:
            place = msgspec.structs.replace(place, network="on")
        way = await found_backend()
        if way.kind == "none":
            await self._without(me, place, way, name)
            return None
        door = await self._door(me, place, way)
        names = await trio.to_thread.run_sync(names_in, nature.pop("file", None))
        has, lacks = (names, {}) if ours or place.profile == "open" else await self._secrets(me, place, name, names)
        return Held(place, name, way, self._grants, door, names=names, given=has, lacks=lacks, **nature)

    async def _secrets(
        self, me: Actor, place: Place, name: str, names: frozenset[str]
    ) -> tuple[Iterable[str], Mapping[str, str]]:
        """The secrets that a program names: those that a person lets it have, and why not the others."""
        has, lacks = [], {}
        asked = {each: text for each, text in self._environ.items() if each in names and looks_secret(each, text)}
        for variable in sorted(withheld(asked, place.rules.env, names)):
            try:
                what = f"have {variable}"
                await self._grants.once(me, name, what, f"Let {name} have {variable}?\nIts file names this variable")
                has.append(variable)
            except NotAdmitted as refused:
                lacks[variable] = str(refused)
        return has, lacks

    async def _without(self, me: Actor, place: Place, way: Backend, name: str) -> None:
        """There is no way to hold it. Ask whether it may be started all the same.

        Raises:
            ProcessError: it may not.
        """
        why = _no_way(place, way)
        try:
            await self._grants.once(me, name, "start without a sandbox", f"Start {name} without a sandbox?\n{why}")
        except NotAdmitted as refused:
            raise ProcessError(
                f"can't start {name!r}: {why}. `--sandbox off` (`sandbox: off` in config.yaml) does without ({refused})"
            ) from None

    async def _door(self, me: Actor, place: Place, way: Backend) -> Door | None:
        """The run's way out, if this kind of process has that; opened when the first one needs it."""
        if not isinstance(place.network, tuple) or place.profile == "open" or way.kind != "bubblewrap":
            return None
        shared = self._way_out
        async with shared.opening:
            if shared.door is None or shared.door.namespace.closed:
                shared.door = await open_door(shared.top or me, self._admits, self._environ, as_root=way.as_root)
            return shared.door

    async def _admits(self, me: Actor, client: Client, host: str, port: int) -> bool:
        place = self.of_tool(client.name)
        listed = place.network if place is not None and isinstance(place.network, tuple) else ()
        return await self._grants.may_reach(me, client, listed, host, port)

    def remove(self) -> None:
        """The run is over. Blocks."""
        shutil.rmtree(self.temporary, ignore_errors=True)

    def _place(self, rules: SandboxRules, usual: Network, temporary: str) -> Place | None:
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
            temporary=temporary,
            network=() if network == "ask" else network,
        )


@final
class _WayOut:
    """What a sandbox shares with those that are narrower."""

    def __init__(self) -> None:
        self.opening = trio.Lock()
        self.top: Actor | None = None
        self.door: Door | None = None


async def held_server(me: Actor, place: Place, name: str, given: Iterable[str], environ: Mapping[str, str]) -> Held:
    """How the process of an MCP server is held that `me` is about to start, and whose way out ends with `me`.

    It may be shared by runs, so nobody is asked about the hosts that it wants to reach: its list says it all.

    Raises:
        ProcessError: it can't be held.
    """
    way = await found_backend()
    if way.kind == "none":
        raise ProcessError(
            f"can't start {name!r}: {_no_way(place, way)}. `sandbox: {{servers: {{{name}: {{profile: off}}}}}}` in "
            f"config.yaml does without"
        )
    door = None
    if isinstance(place.network, tuple) and place.profile != "open" and way.kind == "bubblewrap":
        door = await open_door(me, partial(_listed, place.network), environ, as_root=way.as_root)
    return Held(place, name, way, None, door, given=given)


def is_ours(file: Path | None) -> bool:
    """Whether a program came with callboard: those of its agents that go to the web see to it where."""
    return file is not None and file.resolve().is_relative_to(LIBRARY.resolve())


def _paths_in(words: Iterable[str], here: str) -> tuple[str, ...]:
    """The directories and files of data among the words of a command, without links."""
    paths = (os.path.join(here, os.path.expanduser(word.rpartition("=")[2])) for word in words if "/" in word)
    return tuple(
        path
        for path in real(paths)
        if path not in WHOLE and not path.endswith(PROGRAMS) and (os.path.isdir(path) or not os.access(path, os.X_OK))
    )


async def _listed(hosts: tuple[str, ...], _: Actor, client: Client, host: str, port: int) -> bool:
    if not meant(hosts, host, port):
        raise NotAdmitted(f"it is not in `network` of the server '{client.name}' (`sandbox` in config.yaml)")
    return named(hosts, host, port)


def _no_way(place: Place, way: Backend) -> str:
    why = "; ".join(way.why_not)
    return f"it would have to be held to the sandbox '{place.profile}', and there is no way to: {why}"


async def found_backend() -> Backend:
    """That of this machine; the first time it is tried out, in a thread."""
    return backend() if is_known() else await trio.to_thread.run_sync(backend)


def before_any_run(said: Profile | UserSandbox, config_dir: Path, environ: Mapping[str, str]) -> Sandbox:
    """What holds the servers that are started before any run wants them, by what the settings say."""
    return Sandbox(
        rules_of(said, None),
        here=Path.cwd(),
        config_dir=config_dir,
        environ=environ,
        temporary=Path("/nonexistent"),  # that of a run: a server has one of its own
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
