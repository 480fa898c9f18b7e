"""One process in a sandbox, as a `Confinement`.

What is hidden from it is looked for when it starts. When it has ended, what the sandbox kept it from becomes a question
to a person: whether it may write there, and runs again; or it is told to the model, which can't see it.
"""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, final

from ....supervisors.confinement import Confined
from ...io.directories import private_directory, sweep
from ...io.temporary import LazyDirectory, run_bases
from ..call_clock import current as call_clock
from .backends import Backend
from .confined import SandboxedProcess
from .door import environment as by_the_door
from .git_directories import GitFiles, git_files
from .grants import REACH, WRITE, Grants, NotAdmitted, Who
from .place import OF_KERNEL, PROGRAMS, WHOLE, Beyond, Nature, Place
from .policy import Policy, is_below, real
from .refused import missed_network, refused_paths
from .secret_files import env_files, kept_files, no_secrets, secret_files
from .variables import NO_PROGRAM, Program, withheld

if TYPE_CHECKING:
    from ....supervisors import Actor
    from .door import Door

CACHES = {
    "npm_config_cache": ("npm", ".npm"),
    "YARN_CACHE_FOLDER": ("yarn", ".cache/yarn"),
    "BUN_INSTALL_CACHE_DIR": ("bun", ".bun/install/cache"),
    "DENO_DIR": ("deno", ".cache/deno"),
    "UV_CACHE_DIR": ("uv", ".cache/uv"),
    "PIP_CACHE_DIR": ("pip", ".cache/pip"),
    "GOCACHE": ("go-build", ".cache/go-build"),
    "GOMODCACHE": ("go-mod", "go/pkg/mod"),
}
"""Variables that say where package managers keep what they fetch; a folder of ours for each, and theirs in the home."""

CACHES_LEFT_FOR = 30 * 24 * 3600.0
"""Seconds after which a place for caches is removed that nothing was started with."""


@final
class Held:
    """One process, as a `Confinement`.

    Args:
        nature: what it is, and needs by that.
        way: what holds it.
        grants: None for a process of no run: nobody is asked about it.
        door: its way out, if its network is a list of hosts.
        temporary: the directory that is its `/tmp`; None for one that ends with it.
        given: variables that are meant for it, whatever they are called.
        program: its text, among whose words may be names of variables.
        lacks: secrets among those that it does not have, and why.
    """

    def __init__(
        self,
        place: Place,
        nature: Nature,
        way: Backend,
        grants: Grants | None = None,
        door: Door | None = None,
        *,
        temporary: LazyDirectory | None = None,
        given: Iterable[str] = (),
        program: Program = NO_PROGRAM,
        lacks: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._place = place
        self._name = nature.name
        self._nature = nature
        self._way = way
        self._grants = grants
        self._door = door
        self._temporary = temporary
        self._own = LazyDirectory(f"tmp-{secrets.token_hex(6)}", run_bases)
        has_all = isinstance(place.network, tuple) and door is None and "*" in place.network
        self._network = nature.beyond.network or has_all
        self._given = tuple(given)
        self._names = program.names
        self._lacks = lacks
        self._who = Who(nature.name, program.sum)
        self._client = None if door is None else door.client(self._who, call_clock.get())
        self._policy: Policy | None = None
        self._cwd = place.here
        self._cached_in = ""

    def begin(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Confined:
        """See `Confinement`."""
        self._cwd = os.path.realpath(cwd or self._place.here)
        policy = self._policy = self._policy_for(argv, env)
        sandboxed = SandboxedProcess(policy, self._way)
        if not policy.bounded:
            return sandboxed.begin(argv, env, cwd)
        env = {**self._caches(policy, env), **self._environment(env)}
        return sandboxed.begin(argv, env if self._client is None else by_the_door(self._client, env), cwd)

    def meaning(self, status: int) -> int:
        """See `Confinement`. bubblewrap, which stands between, exits as a shell would."""
        between = self._way.kind == "bubblewrap" and self._place.profile != "open"
        return 128 - status if between and 128 < status < 128 + signal.NSIG else status

    def end(self) -> None:
        """See `Confinement`."""
        self._own.remove()
        if self._door is not None and self._client is not None:
            self._door.forget(self._client)

    async def afterwards(self, me: Actor, said: str) -> tuple[Beyond | None, str]:
        """It has ended, and not well, which may be for its sandbox alone.

        Args:
            said: what it has printed, as far as it is known.

        Returns:
            What it may do beyond when it runs again, None for not again; and what the model is to know, "" for nothing.
        """
        notes = [f"did not let it have the variable {name}: {why}" for name, why in self._lacks.items()]
        if self._client is not None:
            notes += [f"did not let it reach {host}: {why}" for host, why in self._client.refused.items()]
        place = self._unwritable(said)
        if place and self._grants is not None:
            text = f"Let {self._name} write in {place}?\nIt tried to, and the sandbox refused. It will run again"
            try:
                await self._grants.asked(me, self._who, WRITE + place, text)
                return Beyond(writes=(place,)), ""
            except NotAdmitted as refused:
                notes.append(f"did not let it write in {place}: {refused}")
        if self._is_cut_off and self._grants is not None and missed_network(said):
            text = f"Let {self._name} use the network?\nIt tried to. Landlock can't tell hosts apart. It will run again"
            try:
                await self._grants.once(me, self._who, REACH + "*", text)
                return Beyond(network=True), ""
            except NotAdmitted as refused:
                notes.append(f"did not let it use the network: {refused}")
        return None, f"[the sandbox {'; it '.join(notes)}]" if notes else ""

    @property
    def _was_granted(self) -> bool:
        return self._grants is not None and self._grants.has(self._who, REACH + "*")

    @property
    def _is_cut_off(self) -> bool:
        """Whether it has no network where a list of hosts was meant, which this backend can't do."""
        return (
            isinstance(self._place.network, tuple)
            and self._policy is not None
            and not self._policy.network
            and not self._door
        )

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
            of_git = (each.path for each in policy.git)
            never = (*policy.hides, *policy.fixed, *policy.env_files, *of_git, *OF_KERNEL)
            forbidden = any(is_below(place, each) for each in never)
            allowed = any(is_below(place, each) for each in (*policy.writes, policy.temporary or "/tmp"))  # noqa: S108
            too_much = place == self._place.home or place.count("/") < 2  # `/etc` is not asked about, `/etc/x` is
            if not forbidden and not allowed and not too_much and os.access(place, os.W_OK):
                return place
        return ""

    def _caches(self, policy: Policy, env: Mapping[str, str]) -> dict[str, str]:
        """Where package managers keep what they fetch: where it can't change what the user, or another, starts."""
        place, home = self._cached_in, self._place.home
        if policy.profile != "workspace" or not place:
            return {}
        theirs = {name: f"{home}/{usual}" for name, (_, usual) in CACHES.items() if name not in env}
        own = [name for name, usual in theirs.items() if not any(is_below(usual, each) for each in policy.writes)]
        return {name: f"{place}/{CACHES[name][0]}" for name in own}

    def _cache(self) -> str:
        """Make the directory for caches. One that is not used for long is removed when another is made."""
        directory = Path(self._place.caches)
        try:
            if not directory.is_dir():
                sweep(directory.parent, CACHES_LEFT_FOR)
                private_directory(directory)
            os.utime(directory)
        except OSError:  # a read-only home: then caches last as long as the run, or as this process
            directory = (self._temporary or self._own).path() / "caches"
            private_directory(directory)
        return str(directory)

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Without what it has inherited and should not have. What was made for it it keeps."""
        inherited = {name: value for name, value in env.items() if os.environ.get(name) == value}
        ours = withheld(inherited, (*self._place.rules.env, *self._given), self._names)
        return {name: value for name, value in env.items() if name not in ours}

    def _policy_for(self, argv: Sequence[str], env: Mapping[str, str]) -> Policy:
        place, nature, rules, profile = self._place, self._nature, self._place.rules, self._place.profile
        if profile == "open":
            return Policy(profile="open", network=True)
        granted = () if self._grants is None or profile != "workspace" else self._grants.writes(self._who)
        named = real([place.here, *(_seen_from(place, path) for path in rules.write), *granted])
        works_in = tuple(path for path in named if is_workspace(path))
        writes = (*works_in, *named_data(place)) if profile == "workspace" else ()
        temporary = self._temporary
        if temporary is None and self._way.kind == "landlock":  # bubblewrap gives it an empty `/tmp` in memory
            temporary = self._own
        self._cached_in = self._cache() if place.caches and profile == "workspace" else ""
        caches = [self._cached_in] if self._cached_in else []
        home = Path(place.home)
        shown = (*real(_seen_from(place, path) for path in rules.show), *no_secrets(home))
        hidden = (
            *secret_files(home, Path(place.config_dir), os.environ),
            *real(_seen_from(place, path) for path in rules.hide),
        )
        programs = (*_programs(), *_on_path(env, place.home), *_paths(argv, place.home))
        can_hide = self._way.kind != "landlock" or not writes  # looking for what it could not hide takes milliseconds
        hides = tuple(path for path in dict.fromkeys(hidden) if path not in shown and path not in works_in)
        git = git_files((*writes, *nature.beyond.writes)) if self._way.kind == "bubblewrap" else GitFiles()
        return Policy(
            profile=profile,
            writes=(*writes, *real([*nature.writes, *nature.beyond.writes, *caches])),
            fixed=git.pointers,
            git=git.directories,
            kept=tuple(
                path
                for path in kept_files(home, Path(place.config_dir))
                if _is_within(path, writes) and path not in hides
            ),
            shows=real((place.home, place.config_dir, self._cwd, *works_in, *nature.shows, *shown, *programs)),
            hides=hides,
            env_files=tuple(path for path in env_files(works_in) if path not in shown) if can_hide else (),
            temporary=None if temporary is None else str(temporary.path()),
            network=place.network == "on" or (self._door is None and (self._network or self._was_granted)),
            namespace=None if self._door is None else self._door.namespace,
        )


def named_data(place: Place) -> tuple[str, ...]:
    """Return the directories and data files that a server's entry names, without links.

    A file that does not exist yet is replaced with its directory, where the server may create it.
    """
    found = []
    for path in place.named:
        if not os.path.lexists(path) and os.path.dirname(path) not in (place.home, place.here):
            path = os.path.dirname(path)
        if os.path.isdir(path) or not os.access(path, os.X_OK):
            found.append(path)
    return tuple(path for path in real(found) if is_workspace(path))


def is_workspace(path: str) -> bool:
    """Return whether a directory may be made writable at all."""
    return path not in WHOLE and not any(is_below(path, each) for each in OF_KERNEL)


def _is_within(path: str, directories: Sequence[str]) -> bool:
    """Whether it lies in one of them, and is none itself."""
    return any(is_below(path, each) for each in directories) and path not in directories


def _paths(argv: Sequence[str], home: str) -> list[str]:
    """The program, and the files that its first arguments name: what is to be run has to be seen.

    Code in the hidden part of a home directory is seen with what it was installed with.
    """
    found = []
    for path in argv[:4]:
        if not path.startswith("/"):
            continue
        found.append(path)
        if path.startswith(f"{home}/.") and path.endswith(PROGRAMS):
            place = os.path.dirname(path)
            while not any(os.path.exists(f"{place}/{name}") for name in ("package.json", "pyproject.toml")):
                place = os.path.dirname(place)
                if place.count("/") <= home.count("/") + 1:
                    place = os.path.dirname(path)
                    break
            if place.count("/") > home.count("/") + 1:
                found.append(place)
    return found


def _on_path(env: Mapping[str, str], home: str) -> list[str]:
    """The user's programs, where a process has directories of its own, and in the hidden part of the home directory."""
    found = []
    for place in env.get("PATH", "").split(os.pathsep):
        if place.startswith(("/tmp/", "/run/")):  # noqa: S108 - compared, not written to
            found.append(place)
        above = os.path.dirname(place)
        if place.startswith(f"{home}/.") and os.path.basename(place) == "bin" and above.count("/") > home.count("/"):
            # Programs read what lies beside their `bin`: libraries, the modules of a virtual environment.
            found.append(place if above == f"{home}/.local" else above)
    return found


@cache
def _programs() -> tuple[str, ...]:
    """Where Python and our own helpers are."""
    import sys

    return real([sys.prefix, sys.base_prefix, str(Path(__file__).resolve().parents[3])])


def _seen_from(place: Place, path: str) -> str:
    if path == "~" or path.startswith("~/"):
        path = place.home + path[1:]
    return os.path.join(place.here, path)
