"""bubblewrap backend: a private file system per process, which contains only what its policy names.

The root file system is mounted read-only. Over it come, in this order: a `/dev` of plain devices; a read-only `/proc`
of a new pid namespace; an empty `/run`, where sockets of other programs would be; a private `/tmp`. Then come writable,
hidden and shown paths, deeper paths later. A process without a network has a loopback of its own and nothing else.

bubblewrap parses the whole mount table again for each mount that it makes. The time for many hidden files therefore
grows with the square of their number: 500 took a second. Beyond `FEW` files, `cover_files` covers them after
bubblewrap's own mounts and before the command starts.

A hidden directory has no entries, and a hidden file can't be opened. A git directory is read-only, with exceptions
(`git_directories`). As a mount of its own it can't be moved away and replaced. The same holds for directories above a
protected path (`_pinned`).
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from .policy import RETAINED_CAPABILITIES, Policy, env_paths, is_below

RESOLVERS = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf", "/run/connman")
"""Targets of `/etc/resolv.conf`, shown to processes that have a network."""

FEW = 30
"""Files that bubblewrap covers itself. Starting `cover_files`, which covers any number, costs as much as this many."""

COVERS = Path(__file__).resolve().with_name("cover_files.py")

OWN = ("/tmp", "/run", "/dev", "/proc")  # noqa: S108 - names of places
"""Directories that are private to the sandbox: paths of the machine in them must be shown explicitly."""


@cache
def found() -> str | None:
    """Return the path of `bwrap`, or None if it is not installed."""
    return shutil.which(
        "bwrap", path=os.pathsep.join(("/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin"))
    )


def options(policy: Policy, *, filter: int, as_root: bool) -> list[str]:
    """Return bubblewrap's options for a policy.

    Args:
        filter: descriptor from which bubblewrap reads the seccomp filter.
        as_root: use root's privilege to mount; otherwise create a user namespace, which permits mounting.
    """
    # As root there is no user namespace: /proc/sys and similar entries would be the machine's, with root's own modes.
    # bwrap covers some, but only where access(2) finds the directory writable, which procfs denies even to root. A user
    # namespace is no help: it hides files of other users and leaves /proc/sys writable. So all of /proc is read-only,
    # not a list of its entries. /sys is read-only together with the root.
    told = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc", "--tmpfs", "/run"]
    told += ["--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-cgroup-try", "--seccomp", str(filter)]
    if as_root:
        told += ["--cap-drop", "ALL"]
        for name in RETAINED_CAPABILITIES:
            told += ["--cap-add", f"CAP_{name}"]
    else:
        told.append("--unshare-user")
    if not policy.network:
        told += [] if policy.namespace is not None else ["--unshare-net"]
    else:
        for path in RESOLVERS:
            told += ["--ro-bind-try", path, path]
    told += _temporary(policy)
    places = _places(policy)
    # A later mount covers an earlier one, so a path must be mounted after all paths above it.
    for _, how in sorted(places.items(), key=lambda place: place[0].count("/")):
        told += how
    # Hidden directories become read-only after everything inside them is mounted.
    for path, how in places.items():
        if how == ["--tmpfs", path] and not any(is_below(each, path) for each in policy.writes):
            told += ["--remount-ro", path]
    return told


def covers_after(policy: Policy) -> bool:
    """Return True if `cover_files` covers the files of variables after bubblewrap has made its mounts."""
    return len(policy.env_files) > FEW


def covering(*, files: int, ours: int, inner: int) -> tuple[list[str], list[str]]:
    """Return the command prefixes that cover files: one for bubblewrap, one for the command inside it.

    Args:
        files: descriptor of the records; see `records`.
        ours, inner: descriptors of a pair of connected stream sockets.
    """
    python = [sys.executable, "-I", "-S", str(COVERS)]
    return [*python, "cover", str(files), str(ours), str(inner)], [*python, "wait", str(inner)]


def records(policy: Policy) -> bytes:
    """Return the files of variables in the record format that `cover_files` reads."""
    return b"".join(b"%d:%d:%s\0" % (*each.directory, os.fsencode(each.path)) for each in policy.env_files)


def environment(policy: Policy, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with `/tmp` in place of temporary directories that the policy does not make writable."""
    given = dict(env)
    for name in ("TMPDIR", "TMP", "TEMP"):
        place = given.get(name)
        if place is not None and not any(is_below(os.path.realpath(place), each) for each in policy.writes):
            given[name] = "/tmp"  # noqa: S108 - the sandbox's own
    return given


def own_places(policy: Policy) -> dict[str, bool]:
    """Return paths as the process sees them, each with True if sockets below it belong to its run."""
    places = {} if "/tmp" in policy.writes else {"/tmp": True, "/dev/shm": True}  # noqa: S108 - the sandbox's own
    places |= dict.fromkeys((*policy.shows, *policy.hides, *env_paths(policy)), False)
    places |= dict.fromkeys(policy.writes, True)
    return places | dict.fromkeys((*policy.kept, *policy.fixed), False)


def _temporary(policy: Policy) -> list[str]:
    if "/tmp" in policy.writes:  # noqa: S108 - the user works there
        return []
    return ["--tmpfs", "/tmp"] if policy.temporary is None else ["--bind", policy.temporary, "/tmp"]  # noqa: S108 - the mount point inside


def _places(policy: Policy) -> dict[str, list[str]]:
    """Return each path with the bubblewrap options that mount it."""
    places = {path: ["--ro-bind-try", path, path] for path in policy.shows if any(is_below(path, own) for own in OWN)}
    # Later entries replace earlier ones for the same path: writable wins over shown and hidden, `kept` over writable.
    for path in policy.hides if covers_after(policy) else (*policy.hides, *env_paths(policy)):
        places[path] = _hidden(path)
    for path in policy.shows:
        if any(is_below(path, hidden) for hidden in policy.hides):
            places[path] = ["--ro-bind-try", path, path]
    places.update({path: ["--bind-try", path, path] for path in policy.writes})
    places.update({path: ["--ro-bind-try", path, path] for path in policy.kept})
    for path in policy.fixed:  # git creates a missing submodule directory, so it is mounted as an empty read-only one.
        places[path] = ["--ro-bind", path, path] if os.path.exists(path) else ["--tmpfs", path, "--remount-ro", path]
    directories = [git.path for git in policy.git]
    for git in policy.git:
        covered = any(is_below(git.path, each) and each != git.path for each in directories)
        if not covered and any(is_below(git.path, each) for each in policy.writes):
            places[git.path] = ["--ro-bind", git.path, git.path]
        places.update({path: ["--bind", path, path] for path in git.writable})
    found = _needed({path: how for path, how in places.items() if how})
    return found | _pinned(policy, found)


def _needed(places: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the places without mounts that change nothing: shown in a shown directory, or hidden in a hidden one.

    bubblewrap reads the whole mount table after nearly every mount, which costs 0.1 ms: most of its start.
    """
    needed: dict[str, list[str]] = {}
    for path in sorted(places, key=len):
        how = places[path]
        above = needed.get(max((each for each in needed if is_below(path, each)), key=len, default=""), [])
        if not (_is_read_only_bind(how) and _is_read_only_bind(above)) and not (
            _is_hidden(how) and _is_hidden_directory(above)
        ):
            needed[path] = how
    return needed


def _is_read_only_bind(how: list[str]) -> bool:
    return len(how) == 3 and how[0] in ("--ro-bind", "--ro-bind-try") and how[1] == how[2]


def _is_hidden_directory(how: list[str]) -> bool:
    return len(how) == 2 and how[0] == "--tmpfs"


def _is_hidden(how: list[str]) -> bool:
    return _is_hidden_directory(how) or how[:2] == ["--ro-bind", os.devnull]


def _pinned(policy: Policy, places: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Mount each writable directory above a protected path on itself, so that it can't be renamed.

    A mount follows the directory that it is in. A process that renames `conf` moves the cover of `conf/key.pem` along.
    But the next process is started with a cover at the old path, and reads `other/key.pem`. The kernel refuses to
    rename a directory that is a mount point.
    """
    protected = (*policy.hides, *policy.kept, *policy.fixed, *(git.path for git in policy.git))
    pinned: dict[str, list[str]] = {}
    for path in protected:
        above = os.path.dirname(path)
        while above not in places and above not in pinned and above.count("/") > 1:
            deepest = max((each for each in places if is_below(above, each)), key=len, default="")
            if deepest not in policy.writes:
                break
            pinned[above] = ["--bind", above, above]
            above = os.path.dirname(above)
    return pinned


def _hidden(path: str) -> list[str]:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return []
    return ["--tmpfs", path] if stat.S_ISDIR(mode) else ["--ro-bind", os.devnull, path]
