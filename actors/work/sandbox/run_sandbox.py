"""Sandbox of a run: rules for the processes that its agents start, and entry points for code that starts one.

    held = await sandboxed(me, "fs_tool", writes=[output], shows=[file.parent])
    process = await start_process(me, argv, confinement=held)

The sandbox is in a context variable (`current`), which is None if the user disables the sandbox. The caller names the
paths that the process needs by its nature: its result file, or the directory of its program.

The rules for one tool or server combine the general rules with those under its name (`policy.SandboxPlace`). MCP
servers are shared by runs, so their rules are part of the key that they are shared by. The processes of a run share one
egress, and the grants of the user. Where no backend works, the user is asked about each process that needs a sandbox.
"""

from __future__ import annotations

import copy
import hashlib
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, final

import msgspec

from ....protocol.sandbox import PROFILES, Network, OwnSandbox, Profile, SandboxRules, UserSandbox
from ...io.directories import cache_dir
from ...io.imports import imported
from .grants import Grants
from .policy import PROGRAMS, WITHIN, Beyond, Nature, SandboxPlace

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ...io.temporary import LazyDirectory
    from .exposure import Exposure
    from .grants import ProxyClient
    from .launch import HeldProcess, Launcher


T = TypeVar("T")

MOST_ATTEMPTS = 6
"""Starts of one process at most; each start after the first follows a grant by the user."""

current: ContextVar[Sandbox | None] = ContextVar("callboard_sandbox", default=None)
"""Sandbox of the run, for all code that the run executes."""

LAUNCH = ".actors.work.sandbox.launch"
"""Module that is imported when a run starts its first process."""

FETCHES = re.compile(r"(fetch_url|web_search|search)_\w+|get_current_weather")
"""Names of tool files that access the web: by default they reach every host without a private address."""

_UNSAFE = re.compile(r"[^\w.-]")


@final
class Sandbox:
    """Sandbox rules of one run, narrowed by the files of its agents and nodes.

    Args:
        rules: the user's rules.
        here: the run's directory.
        config_dir: directory of agents and settings.
        environ: environment of Callboard.
        temporary: the directory that is `/tmp` for the run's processes; None for a private one per process.
        roots: further directories in which the run works.
        grants: grants of the user.
        narrowed: rules in files of agents and nodes, which can only remove permissions.
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
        """Make the run's egress end with `me`, the run's own actor."""
        self._shared.top = me

    @property
    def profile(self) -> Profile:
        """Profile of everything that has no profile of its own."""
        assert self._rules.profile is not None  # `rules_of` sets it
        return self._rules.profile

    def narrower(self, own: OwnSandbox) -> Sandbox:
        """Return a sandbox with fewer permissions, as an agent's file requests."""
        made = copy.copy(self)
        made._narrowed = (*self._narrowed, own)  # noqa: SLF001 - a copy of this object
        return made

    @property
    def narrowed(self) -> tuple[OwnSandbox, ...]:
        """Restrictions that files of agents and nodes have added to the user's rules."""
        return self._narrowed

    def of_tool(self, name: str) -> SandboxPlace | None:
        """Return the rules for processes of a tool, or of a script with this name; None without a sandbox."""
        rules = _put_together(self._rules, _named(self._rules.tools, name))
        rules = msgspec.structs.replace(rules, write=(*rules.write, *self._roots))
        # No questions for web tools: the pattern `*` covers all hosts except private addresses.
        usual: Network = ("*",) if FETCHES.fullmatch(name) else "ask"
        return self._place(
            rules,
            usual,
            self._caches("workspaces", hashlib.sha256(os.fsencode(self._here)).hexdigest()[:16]),
        )

    async def exposure(
        self, name: str, roots: Sequence[str], *, server: bool = False, words: Sequence[str] = (), ours: bool = False
    ) -> Exposure:
        """Return which files and hosts processes of the tool, the script, or the server of this name could reach.

        Args:
            roots: the directories of the workspace, without links.
            words: words of the server's entry; see `sandboxed_server`.
            ours: the program comes with Callboard.
        """
        from .exposure import UNBOUNDED, exposure_of

        place = self.of_server(name, words) if server else self.of_tool(name)
        if place is None:
            return UNBOUNDED
        if server:
            return await exposure_of(place, None, name, roots, {}, ours=ours)
        return await exposure_of(place, self._shared.grants, name, roots, self._shared.exposed, ours=ours)

    def approves(self, host: str, port: int) -> bool:
        """Return True if the user has named this host in `network`, or allowed it by a rule.

        Lists and rules that allow every host, or a whole top-level domain, do not count.
        """
        from .hosts import is_unbounded, matches_host

        listed = self._rules.network
        if isinstance(listed, tuple) and not is_unbounded(listed) and matches_host(listed, host, port):
            return True
        return self._shared.grants.approves(host, port)

    def hears_of_hosts(self, on_reach: Callable[[str], None]) -> None:
        """Set a callback for each host that a process of the run is allowed to reach. It runs before the connection."""
        self._shared.grants.on_reach = on_reach

    def of_server(self, name: str, named: Iterable[str] = ()) -> SandboxPlace | None:
        """Return the rules for an MCP server's process; None without a sandbox.

        Args:
            named: words of its entry in the user's own file; the server may use the paths among them.
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
        from .protected_paths import why_unchangeable

        shown = [path.replace("~", self._home, 1) if path.startswith("~/") else path for path in self._rules.show]
        return why_unchangeable(
            paths,
            home=Path(self._home),
            config_dir=Path(self._config_dir),
            environ=self._shared.environ,
            shown=[os.path.join(self._here, path) for path in shown],
            workspaces=(self._here, *self._roots),
        )

    def why_unreadable(self, paths: Iterable[str]) -> str:
        """Return why no process can read a file, in any form of its path; "" if there is no reason, or no sandbox."""
        if self.profile in ("open", "off") and not self._narrowed:
            return ""
        from .protected_paths import is_env_file

        roots = tuple(os.path.realpath(root) + "/" for root in (self._here, *self._roots))
        # In a workspace only files of variables are secrets, so mostly no file needs to be checked.
        outside = [path for path in paths if is_env_file(os.path.basename(path)) or not path.startswith(roots)]
        if not outside:
            return ""
        from .protected_paths import why_unreadable

        shown = [path.replace("~", self._home, 1) if path.startswith("~/") else path for path in self._rules.show]
        return why_unreadable(
            outside,
            home=Path(self._home),
            config_dir=Path(self._config_dir),
            environ=self._shared.environ,
            shown=[os.path.join(self._here, path) for path in shown],
        )

    async def held(self, me: Actor, nature: Nature) -> HeldProcess | None:
        """Return the confinement for a process that `me` is about to start; None without a sandbox.

        Without a working backend the user is asked, and None means that the process may start without a sandbox.

        Raises:
            ProcessError: the process needs a sandbox, and none works.
        """
        place = self.of_tool(nature.name)
        if place is None:
            return None
        await imported(LAUNCH)
        from .launch import Launcher

        shared = self._shared
        if shared.launcher is None:
            shared.launcher = Launcher(shared.grants, shared.environ, shared.temporary)
        return await shared.launcher.hold(me, place, nature, self._admits, top=shared.top or me)

    async def _admits(self, me: Actor, client: ProxyClient, host: str, port: int) -> bool:
        place = self.of_tool(client.who.name)
        listed = place.network if place is not None and isinstance(place.network, tuple) else ()
        return await self._shared.grants.may_reach(me, client, listed, host, port)

    @property
    def has_files(self) -> bool:
        """True if `remove` has files to remove."""
        return self._shared.temporary is not None and self._shared.temporary.is_made

    def remove(self) -> None:
        """Remove the `/tmp` of the finished run's processes. Blocks."""
        if self._shared.temporary is not None:
            self._shared.temporary.remove()

    def _caches(self, *folders: str) -> str:
        return str(cache_dir(self._shared.environ).joinpath(*folders))

    def _place(self, rules: SandboxRules, usual: Network, caches: str) -> SandboxPlace | None:
        for own in self._narrowed:
            rules = _narrowed(rules, own)
        if rules.profile == "off":
            return None
        network = rules.network or usual
        return SandboxPlace(
            rules=rules,
            here=self._here,
            config_dir=self._config_dir,
            home=self._home,
            network=() if network == "ask" else network,
            caches=caches,
        )


@final
class Shared:
    """State that the processes of a run share, whatever their agents' restrictions.

    Attributes:
        grants: grants of the user.
        environ: environment of Callboard.
        temporary: the directory that is their `/tmp`.
        launcher: makes their confinements; None until the first process.
        top: the actor that their egress ends with.
        exposed: results of `exposure`, by rules: until when each is used, and the private path.
    """

    def __init__(self, grants: Grants, environ: Mapping[str, str], temporary: LazyDirectory | None) -> None:
        self.grants = grants
        self.environ = environ
        self.temporary = temporary
        self.launcher: Launcher | None = None
        self.top: Actor | None = None
        self.exposed: dict[tuple[object, ...], tuple[float, str]] = {}


_FILE_URL = re.compile(r"\b(?:file|sqlite(?:\+\w+)?|duckdb)://(?:/(?=/)|(?=/))(?P<path>/[^?#]*)(?:[?#].*)?$")
"""URL of a file (`file:///a`, `sqlite:////a`, and `sqlite:///a`, which some programs read as absolute)."""


def _paths_in(words: Iterable[str], here: str) -> tuple[str, ...]:
    """Return the absolute paths among a server's words, whether or not they exist.

    They are part of the key that the server is shared by, so this must not check the files. Otherwise a server that
    creates its database would get another key, and would be started twice. `launch` resolves the paths at each start.
    """
    words = [_FILE_URL.sub(r"\g<path>", word) for word in words]
    paths = ((word, os.path.join(here, os.path.expanduser(word.rpartition("=")[2]))) for word in words)
    return tuple(path for word, path in paths if "/" in word and "://" not in word and not path.endswith(PROGRAMS))


def before_any_run(
    said: Profile | UserSandbox, config_dir: Path, environ: Mapping[str, str], here: Path | None = None
) -> Sandbox:
    """Return the sandbox for servers that start before any run, according to the settings."""
    return Sandbox(
        rules_of(said, None),
        here=here or Path.cwd(),
        config_dir=config_dir,
        environ=environ,
        temporary=None,
        grants=Grants(None, None),
    )


def rules_of(settings: Profile | UserSandbox, flag: Profile | None) -> UserSandbox:
    """Return the combined rules of the settings and a flag. The flag sets the profile of everything without one.

    A block that names no profile means `workspace`.
    """
    rules = UserSandbox(profile=settings) if isinstance(settings, str) else settings
    return msgspec.structs.replace(rules, profile=flag or rules.profile or "workspace")


def is_off(rules: UserSandbox) -> bool:
    """Return True if no process needs a sandbox."""
    named = (*rules.tools.values(), *rules.servers.values())
    return rules.profile == "off" and all(each.profile in (None, "off") for each in named)


def _narrowed(rules: SandboxRules, own: OwnSandbox) -> SandboxRules:
    """Return the rules with the restrictions of a file; of two profiles the stricter one applies."""
    assert rules.profile is not None  # `rules_of` sets it
    stricter = min(rules.profile, own.profile or rules.profile, key=PROFILES.index)
    if stricter == "off" and (own.hide or own.network):
        stricter = "workspace"  # restrictions need a profile that can enforce them
    return msgspec.structs.replace(
        rules, profile=stricter, hide=(*rules.hide, *own.hide), network=own.network or rules.network
    )


def _named(rules: Mapping[str, SandboxRules], name: str) -> SandboxRules | None:
    """Return the rules for a name: an exact entry comes before the longest pattern."""
    if name in rules:
        return rules[name]
    found = [pattern for pattern in rules if fnmatchcase(name, pattern)]
    return rules[max(found, key=len)] if found else None


def _put_together(all: SandboxRules, own: SandboxRules | None) -> SandboxRules:
    """Return the general rules combined with an entry: its profile and network win, and its paths are added."""
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


async def sandboxed(
    me: Actor,
    name: str,
    *,
    writes: Sequence[str | os.PathLike[str]] = (),
    shows: Sequence[str | os.PathLike[str]] = (),
    file: Path | None = None,
    beyond: Beyond = WITHIN,
) -> HeldProcess | None:
    """Return the confinement for a tool's or script's process that `me` is about to start; None without a sandbox.

    Args:
        writes, shows: paths that the process writes and reads by its nature.
        file: the program's text, or the directory of its programs, which may name variables that it needs.
        beyond: grants of the user.

    Raises:
        ProcessError: the process needs a sandbox, and none works.
    """
    sandbox = current.get()
    if sandbox is None:
        return None
    return await sandbox.held(me, Nature(name=name, writes=writes, shows=shows, file=file, beyond=beyond))


async def played(
    me: Actor,
    attempt: Callable[[Beyond], Awaitable[tuple[T, HeldProcess | None]]],
    said: Callable[[T], str | None],
) -> tuple[T, str]:
    """Run a process; run it again if the sandbox may have made it fail and the user grants more.

    It is started `MOST_ATTEMPTS` times at most.

    Args:
        attempt: runs the process once with the given grants; returns its result and its confinement.
        said: returns the output of a failed process, and None for a successful one.

    Returns:
        The result of the last attempt, and a note on the sandbox for the model, "" for none.
    """
    beyond = WITHIN
    for _ in range(MOST_ATTEMPTS):
        result, held = await attempt(beyond)
        text = said(result)
        if held is None or text is None:
            return result, ""
        more, note = await held.afterwards(me, text)
        if more is None:
            return result, note
        beyond = Beyond(writes=(*beyond.writes, *more.writes), network=beyond.network or more.network)
    return result, note


def sandboxed_server(name: str, words: Sequence[str] = ()) -> SandboxPlace | None:
    """Return the sandbox rules for the process of the named MCP server; None without a sandbox.

    Args:
        words: words of its entry in the user's own file; the server may use the paths among them.
    """
    sandbox = current.get()
    return None if sandbox is None else sandbox.of_server(name, words)
