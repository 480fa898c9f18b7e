"""The sandbox of a run: what its user has said about the processes that its agents start.

What all are held to is put together with what is said of a tool or a server by its name. A place (`Place`) is how one
kind of process is held; what is hidden from one is looked for when it starts. Where no backend works, none is started.
"""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import final

import msgspec

from ....protocol.errors import ProcessError
from ....protocol.sandbox import PROFILES, Network, OwnSandbox, Profile, SandboxRules, UserSandbox
from ....supervisors.confinement import Confined, Confinement
from ...io.directories import private_directory, sweep
from .backends import Backend, backend
from .confined import SandboxedProcess
from .policy import Policy, exists, real
from .secret_files import env_files, secret_files, withheld

LEFT_FOR = 7 * 24 * 3600.0
"""Seconds after which the directory of a run is taken to be that of one that was killed."""

WHOLE = ("/", "/dev", "/proc", "/sys", "/run")
"""No workspaces: who starts a server there has not meant that all of the machine may be written."""

GUARDED = ("config", "config.worktree", "hooks")
"""What git reads commands from: in a directory that may be written these may not."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """How processes of one kind are held. Two that are equal are held alike.

    Attributes:
        rules: what the user says of them.
        here: where they work.
        config_dir, home: where our configuration and the user's files are.
        temporary: the directory that they have as `/tmp`; "" for one that ends with each.
        network: what counts where the rules say nothing.
    """

    rules: SandboxRules
    here: str
    config_dir: str
    home: str
    temporary: str = ""
    network: Network = "off"

    def process(
        self,
        writes: Sequence[str | os.PathLike[str]] = (),
        shows: Sequence[str | os.PathLike[str]] = (),
        given: Iterable[str] = (),
    ) -> Confinement:
        """The confinement of one.

        Args:
            writes, shows: what it writes and reads by its nature.
            given: variables that its file names with their values: they are meant for it, whatever they are called.
        """
        return _Process(self, tuple(str(path) for path in writes), tuple(str(path) for path in shows), tuple(given))


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
        roots: Iterable[Path] = (),
        narrowed: tuple[OwnSandbox, ...] = (),
    ) -> None:
        self._narrowed = narrowed
        self._rules = rules
        self._here = str(here)
        self._config_dir = str(config_dir)
        self._home = environ.get("HOME") or str(Path.home())
        self._roots = tuple(map(str, roots))
        self.temporary = temporary

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
        return self._place(rules, "off", str(self.temporary))

    def has_network(self, tool: str) -> bool:
        """Whether the processes of a tool reach a network."""
        place = self.of_tool(tool)
        return place is None or place.rules.profile == "open" or (place.rules.network or place.network) == "on"

    def of_server(self, name: str) -> Place | None:
        """How an MCP server's process is held; None for not at all."""
        return self._place(_put_together(self._rules, _named(self._rules.servers, name)), "on", "")

    def remove(self) -> None:
        """The run is over. Blocks."""
        shutil.rmtree(self.temporary, ignore_errors=True)

    def _place(self, rules: SandboxRules, network: Network, temporary: str) -> Place | None:
        for own in self._narrowed:
            rules = _narrowed(rules, own)
        if rules.profile == "off":
            return None
        return Place(
            rules=rules,
            here=self._here,
            config_dir=self._config_dir,
            home=self._home,
            temporary=temporary,
            network=network,
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


class _Process:
    """See `Confinement`; what is to be hidden is looked for when it starts."""

    def __init__(self, place: Place, writes: tuple[str, ...], shows: tuple[str, ...], given: tuple[str, ...]) -> None:
        self._place = place
        self._writes = writes
        self._shows = shows
        self._given = given
        self._started: SandboxedProcess | None = None

    def begin(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Confined:
        """See `Confinement`."""
        place, way = self._place, backend()
        if way.kind == "none":
            raise ProcessError(f"can't start {argv[0]!r}: {_no_way(place.rules, way)}")
        policy = self._policy(os.path.realpath(cwd or place.here), argv, way)
        self._started = SandboxedProcess(policy, way)
        return self._started.begin(argv, self._environment(env) if policy.bounded else env, cwd)

    def end(self) -> None:
        """See `Confinement`."""
        if self._started is not None:
            self._started.end()

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Without what it has inherited of our secrets. What was made for it, an agent's variables say, it keeps."""
        inherited = {name: value for name, value in env.items() if os.environ.get(name) == value}
        ours = withheld(inherited, (*self._place.rules.env, *self._given))
        return {name: value for name, value in env.items() if name not in ours}

    def _policy(self, cwd: str, argv: Sequence[str], way: Backend) -> Policy:
        place, rules = self._place, self._place.rules
        profile = rules.profile
        assert profile is not None  # `rules_of` has seen to it
        if profile == "open":
            return Policy(profile="open", network=True)
        named = real([place.here, *(_seen_from(place, path) for path in rules.write)])
        works_in = tuple(path for path in named if path not in WHOLE)
        writes = works_in if profile == "workspace" else ()
        if place.temporary:
            _made(Path(place.temporary))
        shown = real(_seen_from(place, path) for path in rules.show)
        hidden = (
            *secret_files(Path(place.home), Path(place.config_dir), os.environ),
            *real(_seen_from(place, path) for path in rules.hide),
        )
        can_hide = way.kind != "landlock" or not writes  # looking for what it could not hide anyway takes milliseconds
        return Policy(
            profile=profile,
            writes=(*writes, *real(self._writes)),
            fixed=tuple(path for each in writes for path in _of_git(each)),
            shows=real(
                [place.home, place.config_dir, cwd, *works_in, *_programs(), *self._shows, *shown, *_paths(argv)]
            ),
            hides=tuple(path for path in dict.fromkeys(hidden) if path not in shown and path not in works_in),
            env_files=tuple(path for path in env_files(works_in) if path not in shown) if can_hide else (),
            temporary=place.temporary or None,
            network=(rules.network or place.network) == "on",
        )


def _made(directory: Path) -> None:
    """Make it, if this is the first process that needs it; what runs have left that were killed goes."""
    if not directory.is_dir():
        sweep(directory.parent, LEFT_FOR)
        private_directory(directory)


def _of_git(directory: str) -> tuple[str, ...]:
    git = f"{directory.rstrip('/')}/.git"
    return tuple(path for name in GUARDED if exists(path := f"{git}/{name}") and not os.path.islink(path))


def _paths(argv: Sequence[str]) -> list[str]:
    """The program, and the files that its first arguments name: what is to be run has to be seen."""
    return [part for part in argv[:4] if part.startswith("/")]


@cache
def _programs() -> tuple[str, ...]:
    """Where Python and our own helpers are."""
    import sys

    return real([sys.prefix, sys.base_prefix, str(Path(__file__).resolve().parents[3])])


def _seen_from(place: Place, path: str) -> str:
    if path == "~" or path.startswith("~/"):
        path = place.home + path[1:]
    return os.path.join(place.here, path)


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


def _no_way(rules: SandboxRules, way: Backend) -> str:
    return (
        f"it would have to be held to the sandbox '{rules.profile}', and there is no way to: {'; '.join(way.why_not)}. "
        f"`--sandbox off`, or `sandbox: off` in config.yaml, does without"
    )
