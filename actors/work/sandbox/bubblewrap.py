"""bubblewrap: a process gets a file system of its own, in which only what its policy names can be written or seen.

The whole file system is there for reading; over it come a `/dev` of plain devices, a `/proc` and processes of its own,
which can only be read, an empty `/run` (where the sockets of other programs are), a `/tmp` of its own, then what may be
written, what is hidden and what is shown all the same, the deeper ones later. Without a network it has its own loopback
and nothing else.

What is hidden is empty: a directory without entries, or a file that can't be opened. A git directory is
read-only but for some of it (`git_directories`); as a mount of its own it can't be moved away to put another in its
place.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from functools import cache

from .policy import Policy, is_below
from .privileges import KEPT

RESOLVERS = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf", "/run/connman")
"""What `/etc/resolv.conf` may lead to, for those who have a network."""

OWN = ("/tmp", "/run", "/dev", "/proc")  # noqa: S108 - names of places
"""What is not that of the machine: what is to be seen in there has to be named."""


@cache
def found() -> str | None:
    """The program, if it is installed."""
    return shutil.which(
        "bwrap", path=os.pathsep.join(("/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin"))
    )


def options(policy: Policy, *, filter: int, as_root: bool) -> list[str]:
    """The program's options for a policy.

    Args:
        filter: the descriptor that the seccomp filter is read from.
        as_root: we are root and may mount; else a user namespace is made, which one may in.
    """
    # As root there is no user namespace: /proc/sys and its kin would be those of the machine, with root's own modes.
    # bwrap covers some, but only where access(2) finds the directory writable, which procfs denies even to root.
    # A user namespace is no help: it takes files of other users away and leaves /proc/sys writable.
    # So all of /proc is read-only, not a list of its entries. /sys is read-only with the root.
    told = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc", "--tmpfs", "/run"]
    told += ["--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-cgroup-try", "--seccomp", str(filter)]
    if as_root:
        told += ["--cap-drop", "ALL"]
        for name in KEPT:
            told += ["--cap-add", f"CAP_{name}"]
    else:
        told.append("--unshare-user")
    if not policy.network:
        told += [] if policy.namespace is not None else ["--unshare-net"]
    else:
        for path in RESOLVERS:
            told += ["--ro-bind-try", path, path]
    told += _temporary(policy)
    for _, how in sorted(_places(policy).items(), key=lambda place: place[0].count("/")):
        told += how
    told += _covered(policy)
    return told


def environment(policy: Policy, env: Mapping[str, str]) -> dict[str, str]:
    """What a process must know of its file system."""
    given = dict(env)
    for name in ("TMPDIR", "TMP", "TEMP"):
        place = given.get(name)
        if place is not None and not any(is_below(os.path.realpath(place), each) for each in policy.writes):
            given[name] = "/tmp"  # noqa: S108 - its own
    return given


def own_places(policy: Policy) -> dict[str, bool]:
    """Return paths, as a process sees them, with whether sockets there are of its run."""
    places = {} if "/tmp" in policy.writes else {"/tmp": True, "/dev/shm": True}  # noqa: S108 - its own
    places |= dict.fromkeys((*policy.shows, *policy.hides, *policy.env_files), False)
    places |= dict.fromkeys(policy.writes, True)
    return places | dict.fromkeys((*policy.kept, *policy.fixed), False)


def _temporary(policy: Policy) -> list[str]:
    if "/tmp" in policy.writes:  # noqa: S108 - the user works there
        return []
    return ["--tmpfs", "/tmp"] if policy.temporary is None else ["--bind", policy.temporary, "/tmp"]  # noqa: S108


def _places(policy: Policy) -> dict[str, list[str]]:
    """Each path with the options that put it there."""
    places = {path: ["--ro-bind-try", path, path] for path in policy.shows if any(is_below(path, own) for own in OWN)}
    for path in (*policy.hides, *policy.env_files):
        places[path] = _hidden(path)
    for path in policy.shows:
        if any(is_below(path, hidden) for hidden in policy.hides):
            places[path] = ["--ro-bind-try", path, path]
    places.update({path: ["--bind-try", path, path] for path in policy.writes})
    places.update({path: ["--ro-bind-try", path, path] for path in policy.kept})
    places.update({path: ["--ro-bind-try", path, path] for path in policy.fixed})
    directories = [git.path for git in policy.git]
    for git in policy.git:
        covered = any(is_below(git.path, each) and each != git.path for each in directories)
        if not covered and any(is_below(git.path, each) for each in policy.writes):
            places[git.path] = ["--ro-bind", git.path, git.path]
        places.update({path: ["--bind", path, path] for path in git.writable})
    return {path: how for path, how in places.items() if how}


def _hidden(path: str) -> list[str]:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return []
    return ["--tmpfs", path] if stat.S_ISDIR(mode) else ["--ro-bind", os.devnull, path]


def _covered(policy: Policy) -> list[str]:
    """What is hidden can't be written either, once everything that it may hold has been put there."""
    told: list[str] = []
    for path in policy.hides:
        if os.path.isdir(path) and not any(is_below(each, path) for each in policy.writes):
            told += ["--remount-ro", path]
    return told
