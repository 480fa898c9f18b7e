"""Modes, owners, times, and attributes of files, where only Landlock holds a process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.sandbox_surroundings import PYTHON_ALONE, need, world

# Calls of libc that change `path`, or `fd`, which is open for reading. Each returns 0 where it is let through.
CALLS = {
    "chmod": "libc.chmod(path, 0o777)",
    "fchmod": "libc.fchmod(fd, 0o777)",
    "fchmodat": "libc.fchmodat(here, name, 0o777, 0)",
    "fchmodat without following": "libc.fchmodat(here, name, 0o777, 0x100)",
    "fchmodat2": "libc.syscall(452, here, name, 0o777, 0)",
    "fchmodat2 of a descriptor": "libc.syscall(452, fd, b'', 0o777, 0x1000)",
    "chmod by a link of /proc": "libc.chmod(b'/proc/self/fd/%d' % fd, 0o777)",
    "chmod by a symbolic link": "libc.chmod(link, 0o777)",
    "chmod through the root of a process": "libc.chmod(b'/proc/self/root' + path, 0o777)",
    "chmod by dots": "libc.chmod(os.path.relpath(path), 0o777)",
    "chmod of a directory": "libc.chmod(os.path.dirname(path), 0o777)",
    "chown": "libc.chown(path, uid, gid)",
    "lchown": "libc.lchown(path, uid, gid)",
    "fchown": "libc.fchown(fd, uid, gid)",
    "fchownat": "libc.fchownat(here, name, uid, gid, 0)",
    "fchownat of a descriptor": "libc.fchownat(fd, b'', uid, gid, 0x1000)",
    "utime": "libc.utime(path, struct.pack('=2q', 1, 1))",
    "utimes": "libc.utimes(path, struct.pack('=4q', 1, 0, 1, 0))",
    "futimes": "libc.futimes(fd, struct.pack('=4q', 1, 0, 1, 0))",
    "futimesat": "libc.futimesat(here, name, struct.pack('=4q', 1, 0, 1, 0))",
    "utimensat": "libc.utimensat(here, name, struct.pack('=4q', 1, 0, 1, 0), 0)",
    "utimensat without following": "libc.utimensat(here, name, struct.pack('=4q', 1, 0, 1, 0), 0x100)",
    "futimens": "libc.futimens(fd, struct.pack('=4q', 1, 0, 1, 0))",
    "setxattr": "libc.setxattr(path, b'user.x', b'1', ctypes.c_size_t(1), 0)",
    "lsetxattr": "libc.lsetxattr(path, b'user.x', b'1', ctypes.c_size_t(1), 0)",
    "fsetxattr": "libc.fsetxattr(fd, b'user.x', b'1', ctypes.c_size_t(1), 0)",
    "removexattr": "libc.removexattr(path, b'user.there')",
    "lremovexattr": "libc.lremovexattr(path, b'user.there')",
    "fremovexattr": "libc.fremovexattr(fd, b'user.there')",
}
FLAGS = {
    "setxattrat": "libc.syscall(463, here, name, 0, b'user.x', struct.pack('=QII', 0, 0, 0), ctypes.c_size_t(16))",
    "removexattrat": "libc.syscall(466, here, name, 0, b'user.there')",
    "file_setattr": "libc.syscall(469, here, name, struct.pack('=QIIII', 0x40, 0, 0, 0, 0), ctypes.c_size_t(24), 0)",
    "FS_IOC_SETFLAGS": "libc.ioctl(fd, ctypes.c_ulong(0x40086602), struct.pack('=q', 0x40))",
    "FS_IOC_FSSETXATTR": "libc.ioctl(fd, ctypes.c_ulong(0x401C5820), struct.pack('=5I8x', 0x40, 0, 0, 0, 0))",
}
"""Calls that are refused in the workspace, too."""

RUN = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
path = os.fsencode(sys.argv[1])
here, name = os.open(os.path.dirname(path), os.O_RDONLY), os.path.basename(path)
fd = os.open(path, os.O_RDONLY)
link = b'link'
os.path.lexists(link) or os.symlink(path, link)
uid, gid = os.getuid(), os.getgid()
print(os.strerror(ctypes.get_errno()) if eval(sys.argv[2]) else 'done')
"""


def shape(path: Path) -> tuple[object, ...]:
    """Return all metadata that a call may have changed."""
    seen = path.stat()
    above = path.parent.stat()
    attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    return seen.st_mode, seen.st_uid, seen.st_gid, seen.st_mtime_ns, seen.st_atime, seen.st_ctime_ns, above, attributes


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", [*CALLS, *FLAGS])
async def test_metadata_outside_of_writable_directories_is_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    need("landlock", monkeypatch)
    with world(tmp_path) as there:
        outside = there.outside / "kept"
        os.setxattr(outside, "user.there", b"1")
        outside.read_bytes()
        before = shape(outside)
        done = await there.run([*PYTHON_ALONE, RUN, str(outside), (CALLS | FLAGS)[name]], there.sandbox())
        assert (done.status, done.stderr_tail) == (0, "")
        assert done.stdout != b"done\n"
        assert shape(outside) == before


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", CALLS)
async def test_metadata_in_the_workspace_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    need("landlock", monkeypatch)
    if name == "chmod through the root of a process":
        pytest.skip("paths through links of /proc are refused everywhere")
    with world(tmp_path) as there:
        mine = there.workspace / "code.txt"
        os.setxattr(mine, "user.there", b"1")
        done = await there.run([*PYTHON_ALONE, RUN, str(mine), CALLS[name]], there.sandbox())
        assert (done.stdout, done.stderr_tail) == (b"done\n", "")
        if "utime" in name:
            assert mine.stat().st_mtime == 1
        elif "chmod" in name and "directory" not in name:
            assert mine.stat().st_mode & 0o777 == 0o777
        elif "setxattr" in name:
            assert os.getxattr(mine, "user.x") == b"1"
        elif "removexattr" in name:
            assert os.listxattr(mine) == []


async def test_privileges_are_not_given_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("landlock", monkeypatch)
    with world(tmp_path) as there:
        mine = there.workspace / "code.txt"
        call = "libc.setxattr(path, b'security.capability', b'\\1\\0\\0\\2' + bytes(16), ctypes.c_size_t(20), 0)"
        done = await there.run([*PYTHON_ALONE, RUN, str(mine), call], there.sandbox())
        assert done.stdout == b"Operation not permitted\n"


async def test_what_is_hidden_in_the_workspace_keeps_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("landlock", monkeypatch)
    with world(tmp_path) as there:
        key = there.home / ".ssh/id"
        key.chmod(0o600)
        done = await there.run(["chmod", "0644", str(key), str(key.parent)], there.sandbox(here=there.home))
        assert done.status == 1
        assert key.stat().st_mode & 0o777 == 0o600


DAILY = """
set -e
mkdir -p a/b && echo x > a/b/f && chmod -R u+rwX,go-w a && touch -d 2001-01-01 a/b/f && cp -a a c
tar cf a.tar a && mkdir t && tar xpf a.tar -C t && install -m 755 a/b/f i && test -x i
ln -s f a/b/l && touch -h -d 2001-01-01 a/b/l && chmod +x a/b/f
echo ok
"""


async def test_programs_that_set_modes_and_times_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("landlock", monkeypatch)
    with world(tmp_path) as there:
        done = await there.run(["bash", "-c", DAILY], there.sandbox())
        assert (done.stdout, done.stderr_tail) == (b"ok\n", "")
        assert (there.workspace / "c/b/f").stat().st_mtime == (there.workspace / "t/a/b/f").stat().st_mtime
        assert there.harm(done) == []
