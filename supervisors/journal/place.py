"""Which file systems a journal can't be kept on.

SQLite's log needs memory that all processes of the file map and locks that all of them see. File systems that several
machines share promise neither, and lose data without an error. So they are recognised, and refused by name.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from ...protocol.kernel.errors import JournalPlace

SHARED = {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4"}
SHARED |= {"ocfs2", "orangefs", "pvfs2", "smb3", "smbfs"}
"""Types of file systems that machines share, as the kernel calls them."""

SHARED_BY_FUSE = {"blobfuse2", "ceph", "curlftpfs", "davfs2", "gcsfuse", "glusterfs", "goofys", "juicefs", "mfs"}
SHARED_BY_FUSE |= {"rclone", "s3fs", "sshfs"}
"""What stands behind `fuse.` in such a type."""

_ESCAPED = re.compile(r"\\([0-7]{3})")  # a blank is \040


def check_place(directory: Path) -> None:
    """Raise `JournalPlace` if no journal can be kept in this directory, which may not be there yet."""
    with contextlib.suppress(OSError, UnicodeDecodeError):  # no /proc: nothing is known
        kind = type_of(os.path.realpath(directory), Path("/proc/self/mountinfo").read_text())
        if is_shared(kind):
            raise JournalPlace(
                f"no run can be kept in {directory}: it is on a {kind} file system, which other machines may share, and"
                " what is written there can get lost; set XDG_STATE_HOME to a directory on a local disk"
            )


def is_shared(kind: str) -> bool:
    """Whether machines may share a file system of this type."""
    outer, _, inner = kind.partition(".")
    return kind in SHARED or (outer.startswith("fuse") and inner in SHARED_BY_FUSE)


def type_of(path: str, mountinfo: str) -> str:
    """The type of the file system that an absolute path without links is on, by the kernel's list of mounts."""
    best, found = -1, ""
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        point = _ESCAPED.sub(lambda escaped: chr(int(escaped[1], 8)), fields.split(" ")[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:  # of two at one place the later one is seen
            best, found = len(point), rest.split(" ")[0]
    return found
