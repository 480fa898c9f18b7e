"""Confinement of one process: from the sandbox rules to a policy, and from its failure to a question.

The processes of a run share one egress, opened when the first of them needs it (`Launcher`). An MCP server has an
egress of its own, because several runs may share the server (`hold_server`).

The hidden files are searched when the process starts. After the process ends, a refused write or a missing network
becomes a question to the user: with a grant the process runs again. Other refusals become a note for the model, which
can't see them otherwise.

The refused paths are found in the messages that programs print. No other way works on every kernel. The patterns match
libc, bash, Python, Node and Rust. A program that prints nothing, or another text, gets no question to the user.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, final

import msgspec
import trio

from ....protocol.errors import ProcessError
from ....supervisors.confinement import Confined
from ...io.directories import private_directory, sweep
from ...io.temporary import LazyDirectory, run_bases
from ...io.tenancy import environ, hidden_paths
from ..call_clock import current as call_clock
from ..library import AGENTS
from .backends import Backend, SandboxedProcess, backend, is_known
from .egress import Asks, Egress, open_egress
from .egress import environment as by_the_door
from .git_directories import GitFiles, git_files
from .grants import HAVE, REACH, WRITE, Grants, NotAdmitted, ProxyClient, Who
from .hosts import matches_host, named
from .policy import OF_KERNEL, PROGRAMS, WHOLE, Beyond, Nature, Policy, SandboxPlace, env_paths, is_below, real
from .protected_paths import env_files, no_secrets, protected_files, secret_files
from .variables import NO_PROGRAM, Program, looks_secret, program_in, withheld

if TYPE_CHECKING:
    from ....supervisors import Actor


CACHES = {
    "npm_config_cache": ("npm", ".npm"),
    "YARN_CACHE_FOLDER": ("yarn", ".cache/yarn"),
    "BUN_INSTALL_CACHE_DIR": ("bun", ".bun/install/cache"),
    "DENO_DIR": ("deno", ".cache/deno"),
    "UV_CACHE_DIR": ("uv", ".cache/uv"),
    "UV_TOOL_DIR": ("uv-tools", ".local/share/uv/tools"),
    "PIP_CACHE_DIR": ("pip", ".cache/pip"),
    "GOCACHE": ("go-build", ".cache/go-build"),
    "GOMODCACHE": ("go-mod", "go/pkg/mod"),
}
"""Variables for the caches of package managers: a folder of Callboard's cache each, and the usual place in the home."""

NEXT_TO_BIN = (
    "Cellar",
    "VERSION",
    "cli-plugins",
    "global_packages",
    "go.env",
    "hosted",
    "include",
    "jmods",
    "lib",
    "lib64",
    "libexec",
    "node_modules",
    "opt",
    "package.json",
    "pkg",
    "pyvenv.cfg",
    "release",
    "share",
    "src",
    "store",
    "toolchains",
)
"""Entries next to a `bin` on the PATH that programs read and that hold no credentials."""

DATABASES = (".db", ".db3", ".sqlite", ".sqlite3", ".duckdb")

CACHES_LEFT_FOR = 30 * 24 * 3600.0
"""Seconds after which an unused cache directory is removed."""

LIBRARY = AGENTS.parent
"""Directory of the programs that come with Callboard."""


@final
class Launcher:
    """Confinements for the processes of a run, which share one egress, the grants, and `/tmp`.

    Args:
        grants: grants of the user.
        environ: environment of Callboard.
        temporary: the directory that is their `/tmp`; None for a private one per process.
    """

    def __init__(self, grants: Grants, environ: Mapping[str, str], temporary: LazyDirectory | None) -> None:
        self._grants = grants
        self._environ = environ
        self._temporary = temporary
        self._egress: Egress | None = None
        self._opening = trio.Lock()

    async def hold(
        self, me: Actor, place: SandboxPlace, nature: Nature, asks: Asks, *, top: Actor
    ) -> HeldProcess | None:
        """Return the confinement for a process that `me` is about to start.

        None if no backend works and the user allows a start without a sandbox. The user may also be asked about secrets
        that the program's file names.

        Args:
            asks: decides which hosts the process may reach.
            top: the actor that the egress ends with, if this call opens it.

        Raises:
            ProcessError: no backend works, and the user refuses or can't be asked; or the egress can't be opened.
        """
        name, ours = nature.name, is_ours(nature.file)
        # These programs check addresses themselves, so they need no list.
        if isinstance(place.network, tuple) and ours:
            place = msgspec.structs.replace(place, network="on")
        way = await _found_backend()
        if way.kind == "none":
            await self._without(me, place, way, name)
            return None
        door = await self._opened(way, asks, top) if _needs_egress(place, way) else None
        program = NO_PROGRAM if nature.file is None else await trio.to_thread.run_sync(program_in, nature.file)
        has: Iterable[str] = program.names
        lacks: Mapping[str, str] = {}
        if not ours and place.profile != "open":
            has, lacks = await self._secrets(me, place, Who(name, program.sum), program.names)
        return HeldProcess(
            place, nature, way, self._grants, door, temporary=self._temporary, program=program, given=has, lacks=lacks
        )

    async def _without(self, me: Actor, place: SandboxPlace, way: Backend, name: str) -> None:
        """Ask whether the process may start without a sandbox, since no backend works.

        Raises:
            ProcessError: the user refuses, or can't be asked.
        """
        why = _no_way(place, way)
        text = f"Start {name} without a sandbox?\n{why}"
        try:
            await self._grants.once(me, Who(name), "start without a sandbox", text)
        except NotAdmitted as refused:
            raise ProcessError(
                f"can't start {name!r}: {why}. To start it without a sandbox, use `--sandbox off` (`sandbox: "
                f"off` in config.yaml) ({refused})"
            ) from None

    async def _opened(self, way: Backend, asks: Asks, top: Actor) -> Egress:
        """Return the run's egress. The first call opens it."""
        async with self._opening:
            # The egress is closed if the actor that it lives under has ended; the next process opens another.
            if self._egress is None or self._egress.namespace.closed:
                self._egress = await open_egress(top, asks, self._environ, as_root=way.as_root)
            return self._egress

    async def _secrets(
        self, me: Actor, place: SandboxPlace, who: Who, names: frozenset[str]
    ) -> tuple[Iterable[str], Mapping[str, str]]:
        """Return the secrets that a program names and the user grants, and the reasons for withholding the others."""
        has, lacks = [], {}
        asked = {each: text for each, text in self._environ.items() if each in names and looks_secret(each, text)}
        for variable in sorted(withheld(asked, place.rules.env, names)):
            try:
                text = f"Let {who.name} have {variable}?\nThe tool's file names this variable"
                await self._grants.once(me, who, HAVE + variable, text)
                has.append(variable)
            except NotAdmitted as refused:
                lacks[variable] = str(refused)
        return has, lacks


async def hold_server(
    me: Actor,
    place: SandboxPlace,
    name: str,
    given: Iterable[str],
    environ: Mapping[str, str],
    *,
    writes: Sequence[Path] = (),
    shows: Sequence[str] = (),
) -> HeldProcess:
    """Return the confinement for an MCP server's process that `me` is about to start. Its egress ends with `me`.

    Runs may share the server, so no question is asked about hosts: its list is complete.

    Args:
        given: variables that its entry sets.
        writes, shows: see `Nature`.

    Raises:
        ProcessError: no sandbox works, or the egress can't be opened.
    """
    way = await _found_backend()
    if way.kind == "none":
        raise ProcessError(
            f"can't start {name!r}: {_no_way(place, way)}. To start it without a sandbox, set `sandbox: "
            f"{{servers: {{{name}: {{profile: off}}}}}}` in config.yaml"
        )
    door = None
    if _needs_egress(place, way):
        assert isinstance(place.network, tuple)
        door = await open_egress(me, partial(_listed, place.network), environ, as_root=way.as_root)
    return HeldProcess(place, Nature(name=name, writes=writes, shows=shows), way, None, door, given=given)


def is_ours(program: Path | None) -> bool:
    """Return True if a program comes with Callboard. Such programs check addresses themselves and receive the keys they
    name."""
    return program is not None and program.resolve().is_relative_to(LIBRARY.resolve())


async def _found_backend() -> Backend:
    """Return the backend of this machine. The first call tries it in a thread."""
    return backend() if is_known() else await trio.to_thread.run_sync(backend)


def _no_way(place: SandboxPlace, way: Backend) -> str:
    why = "; ".join(way.why_not)
    return f"the sandbox profile '{place.profile}' is required, and this machine can't enforce it: {why}"


def _needs_egress(place: SandboxPlace, way: Backend) -> bool:
    return isinstance(place.network, tuple) and place.profile != "open" and way.kind == "bubblewrap"


async def _listed(hosts: tuple[str, ...], _: Actor, client: ProxyClient, host: str, port: int) -> bool:
    if not matches_host(hosts, host, port):
        raise NotAdmitted(f"the host is not in `network` of the server '{client.who.name}' (`sandbox` in config.yaml)")
    return named(hosts, host, port)


@final
class HeldProcess:
    """`Confinement` of one process, built from the rules of its kind.

    Args:
        nature: name and needs of the process.
        way: backend that enforces the policy.
        grants: grants of the run; None for a process of no run, about which no question is asked.
        door: egress, if its network is a list of hosts.
        temporary: the directory that is its `/tmp`; None for one that is removed with the process.
        given: variables that the process receives whatever their names.
        program: its text, among whose words may be names of variables.
        lacks: named secrets that the process does not receive, each with the reason.
    """

    def __init__(
        self,
        place: SandboxPlace,
        nature: Nature,
        way: Backend,
        grants: Grants | None = None,
        door: Egress | None = None,
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
        """Return the changed command and its restrictions; see `Confinement.begin`."""
        self._cwd = os.path.realpath(cwd or self._place.here)
        policy = self._policy = self._policy_for(argv, env)
        sandboxed = SandboxedProcess(policy, self._way)
        if not policy.bounded:
            return sandboxed.begin(argv, env, cwd)
        env = {**self._caches(policy, env), **self._environment(env)}
        return sandboxed.begin(argv, env if self._client is None else by_the_door(self._client, env), cwd)

    def meaning(self, status: int) -> int:
        """Return the program's own exit status, negative for a signal.

        bubblewrap runs in between and exits as a shell would: 128 + signal.
        """
        between = self._way.kind == "bubblewrap" and self._place.profile != "open"
        return 128 - status if between and 128 < status < 128 + signal.NSIG else status

    def end(self) -> None:
        """Remove the private temporary directory and unregister from the proxy. See `Confinement.end`."""
        self._own.remove()
        if self._door is not None and self._client is not None:
            self._door.forget(self._client)

    @property
    def has_files(self) -> bool:
        """True if `end` removes a directory. See `Confinement.has_files`."""
        return self._own.is_made

    @property
    def refused_hosts(self) -> Mapping[str, str]:
        """Hosts that the process was refused, as `host:port`, with the reasons."""
        return {} if self._client is None else self._client.refused

    async def afterwards(self, me: Actor, said: str) -> tuple[Beyond | None, str]:
        """Ask the user for a grant if the sandbox may be the reason why the process failed.

        Args:
            said: output of the process, as far as it is known.

        Returns:
            The grant for another attempt, or None for no further attempt; and a note for the model, "" for none.
        """
        notes = [f"did not let it have the variable {name}: {why}" for name, why in self._lacks.items()]
        if self._client is not None:
            notes += [f"did not let it reach {host}: {why}" for host, why in self._client.refused.items()]
        place = self._unwritable(said)
        if place and self._grants is not None:
            text = f"Let {self._name} write in {place}?\nThe sandbox refused its attempt. If you agree, it is run again"
            try:
                await self._grants.asked(me, self._who, WRITE + place, text)
                return Beyond(writes=(place,)), ""
            except NotAdmitted as refused:
                notes.append(f"did not let it write in {place}: {refused}")
        if self._is_cut_off and self._grants is not None and missed_network(said):
            text = (
                f"Let {self._name} use the network?\nThe sandbox refused its attempt. Landlock can't restrict "
                "the network to some hosts. If you agree, it is run again"
            )
            try:
                await self._grants.once(me, self._who, REACH + "*", text)
                return Beyond(network=True), ""
            except NotAdmitted as refused:
                notes.append(f"did not let it use the network: {refused}")
        return None, f"[the sandbox {'; it '.join(notes)}]" if notes else ""

    def hint(self, said: str) -> str:
        """Return a note on a server's error that the sandbox caused, with the setting that allows it; "" for none.

        A server is shared by runs, so there is no question to the user as in `afterwards`.
        """
        policy, name = self._policy, self._name
        if policy is None or policy.profile == "open":
            return ""
        key = f"sandbox.servers.{name}"
        packages = real(self._nature.shows)
        if any(is_below(path, each) for path in refused_paths(said, self._cwd) for each in packages):
            own = f"make '{name}' write elsewhere, with an argument or a variable of its own"
            return f"[the sandbox does not let it write into its package, which other servers share: {own}]"
        if place := self._unwritable(said):
            return f"[the sandbox does not let '{name}' write in {place}; to allow it: {key}.write: [{place}]]"
        for path in missing_paths(said):
            if is_below(path, "/tmp") and os.path.exists(path):  # noqa: S108 - compared, not written to
                return f"[the sandbox gives '{name}' a /tmp of its own, without {path}: put that file elsewhere]"
            # The content of other hidden directories is not mentioned: they hold secrets.
            ours = any(is_below(path, f"{self._place.home}/{each}") for each in (".cache", ".local/share"))
            if ours and not os.path.lexists(path) and any(is_below(path, each) for each in policy.hides):
                return f"[the sandbox hides {path} from '{name}'; to allow it, create it and set {key}.write: [{path}]]"
        if names_database(said):
            return f"[if the sandbox is the cause: add the directory of the database to {key}.write]"
        return ""

    @property
    def _was_granted(self) -> bool:
        return self._grants is not None and self._grants.has(self._who, REACH + "*")

    @property
    def _is_cut_off(self) -> bool:
        """Return True if its network should be a list of hosts, but this backend can't filter by host."""
        return (
            isinstance(self._place.network, tuple)
            and self._policy is not None
            and not self._policy.network
            and not self._door
        )

    def _unwritable(self, said: str) -> str:
        """Return the existing path that the sandbox alone kept the process from writing; "" for none."""
        policy = self._policy
        if policy is None or policy.profile != "workspace":
            return ""
        for path in refused_paths(said, self._cwd):
            # The program may have failed to create a path in a missing directory: the question is about the existing
            # one.
            place = path
            while not os.path.lexists(place):
                place = os.path.dirname(place)
            if not os.path.isdir(place) and place != path:
                continue
            of_git = (each.path for each in policy.git)
            never = (*policy.hides, *policy.fixed, *env_paths(policy), *of_git, *OF_KERNEL)
            forbidden = any(is_below(place, each) for each in never)
            allowed = any(is_below(place, each) for each in (*policy.writes, policy.temporary or "/tmp"))  # noqa: S108 - as inside
            too_much = place == self._place.home or place.count("/") < 2  # `/etc` is not asked about, `/etc/x` is
            if not forbidden and not allowed and not too_much and os.access(place, os.W_OK):
                return place
        return ""

    def _caches(self, policy: Policy, env: Mapping[str, str]) -> dict[str, str]:
        """Return variables that move package caches into Callboard's own directory.

        In the usual place a process could change programs that the user, or another sandbox, starts from there.
        """
        place, home = self._cached_in, self._place.home
        if policy.profile != "workspace" or not place:
            return {}
        theirs = {name: f"{home}/{usual}" for name, (_, usual) in CACHES.items() if name not in env}
        own = [name for name, usual in theirs.items() if not any(is_below(usual, each) for each in policy.writes)]
        return {name: f"{place}/{CACHES[name][0]}" for name in own}

    def _cache(self) -> str:
        """Create the cache directory. Creating one removes others that have not been used for long."""
        directory = Path(self._place.caches)
        try:
            if not directory.is_dir():
                sweep(directory.parent, CACHES_LEFT_FOR)
                private_directory(directory)
            os.utime(directory)
        except OSError:  # read-only home: the caches then last as long as the run, or as this process
            directory = (self._temporary or self._own).path() / "caches"
            private_directory(directory)
        return str(directory)

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the environment without withheld inherited variables. Variables set for this process are retained."""
        inherited = {name: value for name, value in env.items() if environ().get(name) == value}
        ours = withheld(inherited, (*self._place.rules.env, *self._given), self._names)
        return {name: value for name, value in env.items() if name not in ours}

    def _policy_for(self, argv: Sequence[str], env: Mapping[str, str]) -> Policy:
        place, nature, rules, profile = self._place, self._nature, self._place.rules, self._place.profile
        if profile == "open":
            return Policy(profile="open", network=True)
        granted = () if self._grants is None or profile != "workspace" else self._grants.writes(self._who)
        named = real([place.here, *(place.seen(path) for path in rules.write), *granted])
        works_in = tuple(path for path in named if is_workspace(path))
        writes = (*works_in, *named_data(place)) if profile == "workspace" else ()
        temporary = self._temporary
        if temporary is None and self._way.kind == "landlock":  # bubblewrap mounts an empty `/tmp` in memory
            temporary = self._own
        self._cached_in = self._cache() if place.caches and profile == "workspace" else ""
        caches = [self._cached_in] if self._cached_in else []
        home = Path(place.home)
        shown = (*real(place.seen(path) for path in rules.show), *no_secrets(home))
        hidden = (
            *secret_files(home, Path(place.config_dir), environ()),
            *real(place.seen(path) for path in rules.hide),
            *hidden_paths(),
        )
        programs = (*our_programs(), *on_path(env, place.home), *_paths(argv, place.home))
        # Landlock can't hide files in writable directories, so the search, which takes milliseconds, is skipped
        can_hide = self._way.kind != "landlock" or not writes
        hides = tuple(path for path in dict.fromkeys(hidden) if path not in shown and path not in works_in)
        git = git_files((*writes, *nature.beyond.writes)) if self._way.kind == "bubblewrap" else GitFiles()
        return Policy(
            profile=profile,
            writes=(*writes, *real([*nature.writes, *nature.beyond.writes, *caches])),
            fixed=git.pointers,
            git=git.directories,
            kept=tuple(
                path
                for path in protected_files(home, Path(place.config_dir))
                if _is_within(path, writes) and path not in hides
            ),
            shows=real((place.home, place.config_dir, self._cwd, *works_in, *nature.shows, *shown, *programs)),
            hides=hides,
            env_files=tuple(each for each in env_files(works_in) if each.path not in shown) if can_hide else (),
            temporary=None if temporary is None else str(temporary.path()),
            network=place.network == "on" or (self._door is None and (self._network or self._was_granted)),
            namespace=None if self._door is None else self._door.namespace,
        )


def named_data(place: SandboxPlace) -> tuple[str, ...]:
    """Return the directories and data files that a server's entry names, without links.

    A missing file is replaced with its directory, where the server may create it. A database comes with its directory:
    SQLite and DuckDB create a journal next to it, without which nothing is written. Executable files are left out.
    """
    found = []
    for path in place.named:
        above = os.path.dirname(path)
        if above not in (place.home, place.here):
            if is_database(path):  # in addition to its directory: as a word of the command the file itself is shown
                found.append(above)
            elif not os.path.lexists(path):
                path = above
        if os.path.isdir(path) or not os.access(path, os.X_OK):
            found.append(path)
    return tuple(path for path in real(found) if is_workspace(path))


def is_database(path: str) -> bool:
    """Return True for a file of SQLite or DuckDB, or an empty one with the usual suffix of one. Blocks."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            first = file.read(16)
    except OSError:
        return False
    if not first:
        return path.endswith(DATABASES)
    return first.startswith(b"SQLite format 3\0") or first[8:12] == b"DUCK"


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # opening a FIFO without a writer would block


def is_workspace(path: str) -> bool:
    """Return True if a directory may be made writable at all."""
    return path not in WHOLE and not any(is_below(path, each) for each in OF_KERNEL)


def _is_within(path: str, directories: Sequence[str]) -> bool:
    """Return True if the path is inside one of the directories, and not one of them itself."""
    return any(is_below(path, each) for each in directories) and path not in directories


def _paths(argv: Sequence[str], home: str) -> list[str]:
    """Return the program and the files among its first arguments, which must be visible to be executed.

    Code in the hidden part of a home directory is shown together with the package that it belongs to.
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


def on_path(env: Mapping[str, str], home: str) -> list[str]:
    """Return directories on PATH that the sandbox would otherwise replace or hide: in `/tmp`, `/run` and hidden in the
    home."""
    found = []
    for place in env.get("PATH", "").split(os.pathsep):
        if place.startswith(("/tmp/", "/run/")):  # noqa: S108 - compared, not written to
            found.append(place)
        above = os.path.dirname(place)
        if place.startswith(f"{home}/.") and os.path.basename(place) == "bin" and above.count("/") > home.count("/"):
            found.append(place)
            # Programs read files next to their `bin`: libraries, the modules of a virtual environment. A directory of a
            # program's own (`~/.cargo`, `~/.config/x`) has its credentials there, too. Deeper ones are installations.
            if os.path.dirname(above) not in (home, f"{home}/.config"):
                found.append(above)
            elif above != f"{home}/.local":
                found += [f"{above}/{name}" for name in NEXT_TO_BIN]
    return found


@cache
def our_programs() -> tuple[str, ...]:
    """Return the directories of Python and of Callboard's own code."""
    import sys

    return real([sys.prefix, sys.base_prefix, str(Path(__file__).resolve().parents[3])])


# --- messages that programs print after the sandbox has refused a write

_WHY = r"(?:Read-only file system|Permission denied|Operation not permitted|read-only file system|permission denied)"
_SAID = (
    re.compile(r"['\"`‘“](?P<path>[^'\"`’”\n]+)['\"`’”]: " + _WHY),  # touch: cannot touch '/x': Read-only ...
    re.compile(r"(?P<path>[^\s:'\"]*/[^\s:'\"]*): " + _WHY),  # bash: line 1: /x/y: Read-only ...
    re.compile(r"\[Errno (?:1|13|30)\] [^:\n]+: '(?P<path>[^'\n]+)'"),  # Python
    re.compile(r"E(?:ROFS|ACCES|PERM): [^,\n]+, \w+ '(?P<path>[^'\n]+)'"),  # Node
    re.compile(r"[`'\"](?P<path>/[^`'\"\n]+)[`'\"][^\n]*\n?[^\n]*\(os error (?:1|13|30)\)"),  # Rust
)

_NO_NETWORK = re.compile(
    r"could not resolve|couldn't resolve|name resolution|name or service not known|getaddrinfo|ENOTFOUND|EAI_AGAIN|"
    r"network is unreachable|ENETUNREACH|failed to connect|couldn't connect|connection error|no route to host|"
    r"socket: (operation not permitted|permission denied)|\[Errno (1|13|97|101)\].*(socket|connect|urlopen|network)",
    re.IGNORECASE,
)

_MISSING = (
    re.compile(r"(?:ENOENT: [^,\n]+, \w+|can't open file|Cannot find module) '(?P<path>/[^'\n]+)'"),  # Node, Python
    re.compile(r"\[Errno 2\] [^:\n]+: '(?P<path>/[^'\n]+)'"),
    re.compile(r"(?P<path>/[^\s:'\"]+)['\"]?: No such file"),  # bubblewrap, shells
)
_DATABASE = re.compile(r"unable to open database file|attempt to write a readonly database", re.IGNORECASE)

MOST = 20
"""Paths returned at most."""


def missed_network(said: str) -> bool:
    """Return True if the output complains of a missing network."""
    return _NO_NETWORK.search(said) is not None


def missing_paths(said: str) -> list[str]:
    """Return the absolute paths that the output reports as missing, which may be hidden by the sandbox."""
    found = [os.path.normpath(match["path"]) for pattern in _MISSING for match in pattern.finditer(said)]
    return list(dict.fromkeys(found))[:MOST]


def names_database(said: str) -> bool:
    """Return True for SQLite's messages when it can't write a database or its journal. They name no path."""
    return _DATABASE.search(said) is not None


def refused_paths(said: str, cwd: str) -> list[str]:
    """Return the absolute paths that the output reports as refused, without links, the last reported one first.

    Args:
        cwd: directory that relative paths in the output start from.
    """
    found = {}
    for pattern in _SAID:
        for match in pattern.finditer(said):
            found[os.path.realpath(os.path.join(cwd, match["path"]))] = match.start()
    return sorted(found, key=lambda path: -found[path])[:MOST]
