"""How processes of one kind are held (`Place`), and one of them (`Held`).

What is hidden from a process is looked for when it starts. When it has ended, what the sandbox kept it from becomes a
question to a person: whether it may write there, and runs again; or it is told to the model, which can't see it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, final

import msgspec

from ....protocol.sandbox import Profile, SandboxRules
from ....supervisors.confinement import Confined
from ...io.directories import private_directory, sweep
from ..call_clock import current as call_clock
from .backends import Backend
from .confined import SandboxedProcess
from .door import environment as by_the_door
from .grants import WRITE, Grants
from .policy import Policy, exists, is_below, real
from .proxy import NotAdmitted
from .refused import refused_paths
from .secret_files import env_files, secret_files
from .variables import names_in, withheld

if TYPE_CHECKING:
    from ....supervisors import Actor
    from .door import Door

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
        network: `on`, `off`, or the hosts that they reach without asking.
    """

    rules: SandboxRules
    here: str
    config_dir: str
    home: str
    temporary: str = ""
    network: str | tuple[str, ...] = "off"

    @property
    def profile(self) -> Profile:
        """That of its rules."""
        assert self.rules.profile is not None  # `rules_of` has seen to it
        return self.rules.profile


class After(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done about what a process was kept from.

    Attributes:
        note: for the model; "" for nothing.
        writes: where it may write when it runs again; empty for not again.
    """

    note: str = ""
    writes: tuple[str, ...] = ()


@final
class Held:
    """One process, as a `Confinement`.

    Args:
        name: of its tool, script or server.
        way: what holds it.
        grants: None for a process of no run: nobody is asked about it.
        door: its way out, if its network is a list of hosts.
        writes, shows: what it writes and reads by its nature.
        given: variables that are meant for it, whatever they are called.
        file: its program's text, which may name variables that it has.
    """

    def __init__(
        self,
        place: Place,
        name: str,
        way: Backend,
        grants: Grants | None = None,
        door: Door | None = None,
        *,
        writes: Sequence[str | os.PathLike[str]] = (),
        shows: Sequence[str | os.PathLike[str]] = (),
        given: Iterable[str] = (),
        file: Path | None = None,
    ) -> None:
        self._place = place
        self._name = name
        self._way = way
        self._grants = grants
        self._door = door
        self._writes = writes
        self._shows = shows
        self._given = tuple(given)
        self._file = file
        self._client = None if door is None else door.client(name, call_clock.get())
        self._started: SandboxedProcess | None = None
        self._policy: Policy | None = None
        self._cwd = place.here

    def begin(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Confined:
        """See `Confinement`."""
        self._cwd = os.path.realpath(cwd or self._place.here)
        policy = self._policy = self._policy_for(argv)
        self._started = SandboxedProcess(policy, self._way)
        if not policy.bounded:
            return self._started.begin(argv, env, cwd)
        env = self._environment(env)
        return self._started.begin(argv, env if self._client is None else by_the_door(self._client, env), cwd)

    def end(self) -> None:
        """See `Confinement`."""
        if self._started is not None:
            self._started.end()
        if self._door is not None and self._client is not None:
            self._door.forget(self._client)

    async def afterwards(self, me: Actor, said: str) -> After:
        """It has ended, and not well; what it was kept from, and whether it runs again.

        Args:
            said: what it has printed, as far as it is known.
        """
        notes = []
        if self._client is not None:
            notes += [f"did not let it reach {host}: {why}" for host, why in self._client.refused.items()]
        place = self._unwritable(said)
        if place and self._grants is not None:
            text = f"Let {self._name} write in {place}?\nIt tried to, and the sandbox refused. It will run again"
            try:
                await self._grants.asked(me, self._name, WRITE + place, text)
                return After(writes=(place,))
            except NotAdmitted as refused:
                notes.append(f"did not let it write in {place}: {refused}")
        return After(note=f"[the sandbox {'; it '.join(notes)}]" if notes else "")

    def _unwritable(self, said: str) -> str:
        """Where it has tried to write, if it is for the sandbox alone that it could not; "" for nowhere."""
        policy = self._policy
        if policy is None or policy.profile != "workspace":
            return ""
        for path in refused_paths(said, self._cwd):
            place = path
            while not os.path.lexists(place):
                place = os.path.dirname(place)
            if not os.path.isdir(place) and place != path:
                continue
            forbidden = any(is_below(place, each) for each in (*policy.hides, *policy.fixed, *policy.env_files))
            allowed = any(is_below(place, each) for each in (*policy.writes, policy.temporary or "/tmp"))  # noqa: S108
            too_much = place in (*WHOLE, "/tmp", self._place.home) or not os.access(place, os.W_OK)  # noqa: S108
            if not forbidden and not allowed and not too_much:
                return place
        return ""

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Without what it has inherited and should not have. What was made for it it keeps."""
        inherited = {name: value for name, value in env.items() if os.environ.get(name) == value}
        ours = withheld(inherited, (*self._place.rules.env, *self._given), names_in(self._file))
        return {name: value for name, value in env.items() if name not in ours}

    def _policy_for(self, argv: Sequence[str]) -> Policy:
        place, rules, profile = self._place, self._place.rules, self._place.profile
        if profile == "open":
            return Policy(profile="open", network=True)
        granted = () if self._grants is None or profile != "workspace" else self._grants.writes(self._name)
        named = real([place.here, *(_seen_from(place, path) for path in rules.write), *granted])
        works_in = tuple(path for path in named if path not in WHOLE)
        writes = works_in if profile == "workspace" else ()
        if place.temporary:
            _made(Path(place.temporary))
        shown = real(_seen_from(place, path) for path in rules.show)
        hidden = (
            *secret_files(Path(place.home), Path(place.config_dir), os.environ),
            *real(_seen_from(place, path) for path in rules.hide),
        )
        can_hide = self._way.kind != "landlock" or not writes  # looking for what it could not hide takes milliseconds
        return Policy(
            profile=profile,
            writes=(*writes, *real(self._writes)),
            fixed=tuple(path for each in writes for path in _of_git(each)),
            shows=real(
                [place.home, place.config_dir, self._cwd, *works_in, *_programs(), *self._shows, *shown, *_paths(argv)]
            ),
            hides=tuple(path for path in dict.fromkeys(hidden) if path not in shown and path not in works_in),
            env_files=tuple(path for path in env_files(works_in) if path not in shown) if can_hide else (),
            temporary=place.temporary or None,
            network=place.network == "on",
            namespace=None if self._door is None else self._door.namespace,
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
