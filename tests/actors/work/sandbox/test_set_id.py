"""Files that another user would run as ours: no process in a sandbox makes one setuid or setgid."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.sandbox_surroundings import BACKENDS, PYTHON_ALONE, need, world

RUN = """
import contextlib, ctypes, os, struct, sys, tarfile, io
libc = ctypes.CDLL(None, use_errno=True)
open('mine', 'w').close()
def unpack(archive):
    archive.close()
    os.system('tar xpf t')
for number, line in enumerate(sys.argv[1:]):
    with contextlib.suppress(OSError, ValueError):
        exec(line)
"""

WAYS = (
    "os.chmod('mine', {mode})",
    "os.fchmod(os.open('mine', os.O_RDONLY), {mode})",
    "libc.fchmodat(-100, b'mine', {mode}, 0)",
    "libc.syscall(90, b'mine', {mode})",
    "libc.syscall(268, -100, b'mine', {mode})",
    "libc.syscall(452, -100, b'mine', {mode}, 0)",
    "os.open('new-{number}', os.O_CREAT | os.O_WRONLY, {mode})",
    "libc.syscall(85, b'new-{number}', {mode})",
    "libc.syscall(2, b'new-{number}', os.O_CREAT | os.O_RDWR, {mode})",
    "libc.syscall(257, -100, b'new-{number}', os.O_CREAT, {mode})",
    "libc.syscall(437, -100, b'new-{number}', struct.pack('3Q', os.O_CREAT | os.O_WRONLY, {mode}, 0), 24)",
    "os.mknod('new-{number}', 0o100000 | {mode})",
    "f = os.open('.', os.O_TMPFILE | 1, {mode}); libc.linkat(-100, b'/proc/self/fd/%d' % f, -100, b'n{number}', 1024)",
    "os.system('chmod {octal} mine; install -m {octal} mine new-{number}; cp mine x{number}; chmod u+s,g+s x{number}')",
    "i = tarfile.TarInfo('n{number}'); i.mode = {mode}; t = tarfile.open('t', 'w'); t.addfile(i); unpack(t)",
)


@pytest.mark.parametrize("repository", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
async def test_no_file_becomes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, *, repository: bool
) -> None:
    need(backend, monkeypatch)
    chance = random.Random(3)
    lines = []
    for number, way in enumerate(WAYS * 3):
        mode = chance.choice((0o4000, 0o2000, 0o6000)) | chance.randrange(0o1000) | 0o700
        lines.append(way.format(mode=mode, octal=f"{mode:o}", number=number))
    with world(tmp_path) as there:
        if repository:
            for name in ("objects", "refs"):
                (there.workspace / ".git" / name).mkdir(parents=True)
            (there.workspace / ".git/HEAD").write_text("ref: refs/heads/main\n")
        done = await there.run([*PYTHON_ALONE, RUN, *lines], there.sandbox())
        assert done.status == 0, done.stderr_tail
        assert there.harm(done) == []
        found = [path for path in there.workspace.rglob("*") if path.is_file() and path.lstat().st_mode & 0o6000]
        assert found == []


@pytest.mark.parametrize("backend", BACKENDS)
async def test_other_modes_are_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    need(backend, monkeypatch)
    script = "touch a && chmod 1755 a && install -m 640 a b && mkdir -m 1777 c && umask 022 && echo x > d && chmod +x d"
    with world(tmp_path) as there:
        done = await there.run(["sh", "-c", script], there.sandbox())
        assert done.status == 0, done.stderr_tail
        modes = {path.name: path.stat().st_mode & 0o7777 for path in there.workspace.iterdir()}
        assert modes == {"code.txt": modes["code.txt"], "a": 0o1755, "b": 0o640, "c": 0o1777, "d": 0o755}
