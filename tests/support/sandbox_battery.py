"""A battery of attempts to get out of the sandbox, made by a generator: what is done, to what, under which name.

    python sandbox_battery.py BACKEND SEED MOST

prints `{"tried": N, "through": [...], "changed": [...], "controls": [...]}`. `through` has the attempts that were not
refused, `changed` what changed outside of the workspace, `controls` attempts in the workspace that should work and did
not. All attempts are made by one process in the sandbox, each in a fork of it. It needs no pytest, so that an ordinary
user can run it with the system's Python.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from callboard.actors.io.temporary import LazyDirectory, ProcessDirectoryBase
from callboard.actors.work.sandbox.backends import VARIABLE, backend
from callboard.actors.work.sandbox.grants import Grants
from callboard.actors.work.sandbox.policy import Nature
from callboard.actors.work.sandbox.run_sandbox import Sandbox
from callboard.protocol.sandbox import UserSandbox
from callboard.supervisors import Actor, Root
from callboard.supervisors.process import run_process

SECRET = "the-secret-of-the-battery"

# Names of one file, `{}`: its directory and its own name. `deep` is a directory of the workspace, six levels below /.
NAMINGS = {
    "absolute": "D + '/' + N",
    "doubled slashes": "'//' + D.lstrip('/').replace('/', '//./') + '//' + N",
    "dots": "os.path.relpath(D + '/' + N)",
    "dots through a new directory": "(os.makedirs('new/er', exist_ok=True), "
    "'new/er/../../' + os.path.relpath(D + '/' + N))[1]",
    "a link to the directory": "link(D) + '/' + N",
    "a chain of links": "link(link(D)) + '/' + N",
    "a link to the file": "link(D + '/' + N)",
    "the root of the process": "'/proc/self/root' + D + '/' + N",
    "the root of a thread": "'/proc/thread-self/root' + D + '/' + N",
    "the root of the first process": "'/proc/1/root' + D + '/' + N",
    "the root of the process outside": "f'/proc/{PARENT}/root' + D + '/' + N",
    "the working directory of the process": "'/proc/self/cwd/' + os.path.relpath(D + '/' + N)",
    "a descriptor of the directory": "f'/proc/self/fd/{os.open(D, os.O_PATH)}/' + N",
    "a descriptor of the root": "f'/proc/self/fd/{os.open(\"/\", os.O_PATH)}' + D + '/' + N",
    "a descriptor of the file": "f'/proc/self/fd/{os.open(D + \"/\" + N, os.O_PATH)}'",
}

# What is done to a file `p` that exists.
CHANGES = {
    "open for writing": "os.write(os.open(p, os.O_WRONLY), b'x')",
    "open for both": "os.write(os.open(p, os.O_RDWR), b'x')",
    "append": "os.write(os.open(p, os.O_WRONLY | os.O_APPEND), b'x')",
    "truncate by opening": "os.open(p, os.O_WRONLY | os.O_TRUNC)",
    "truncate for reading": "os.close(os.open(p, os.O_RDONLY | os.O_TRUNC)); assert not os.path.getsize(p)",
    "truncate": "os.truncate(p, 0)",
    "map for writing": "import mmap; mmap.mmap(os.open(p, os.O_RDWR), 1)[0] = 65",
    "remove": "os.unlink(p)",
    "rename away": "os.rename(p, 'mine')",
    "rename over": "open('theirs', 'w').close(); os.rename('theirs', p)",
    "exchange": "open('theirs', 'w').close(); check(libc.renameat2(-100, b'theirs', -100, os.fsencode(p), 2))",
    "link and write": "os.link(p, 'mine'); open('mine', 'a').write('x')",
    "chmod": "os.chmod(p, 0o777)",
    "chmod of a descriptor": "os.fchmod(os.open(p, os.O_RDONLY), 0o777)",
    "chown": "os.chown(p, os.getuid(), os.getgid())",
    "times": "os.utime(p, (1, 1))",
    "attribute": "os.setxattr(p, 'user.x', b'1')",
    "copy into": "import shutil; open('theirs', 'w').write('x'); shutil.copyfile('theirs', p)",
    "copy by the kernel": "open('theirs', 'w').write('x'); "
    "os.copy_file_range(os.open('theirs', os.O_RDONLY), os.open(p, os.O_WRONLY), 1)",
    "a shell": "import subprocess; subprocess.run(['sh', '-c', 'echo x >> \"$1\"', 'sh', p], check=True, stderr=-3)",
    "another directory": "os.chdir(os.path.dirname(p) or '.'); open(os.path.basename(p), 'a').write('x')",
    "a directory's descriptor": "os.open(os.path.basename(p), os.O_WRONLY, "
    "dir_fd=os.open(os.path.dirname(p) or '.', os.O_RDONLY))",
}
# What is done in a directory: `p` does not exist.
CREATIONS = {
    "create": "open(p, 'x')",
    "make a directory": "os.mkdir(p)",
    "make a link": "os.symlink('/', p)",
    "make a hard link": "open('theirs', 'w').close(); os.link('theirs', p)",
    "make a pipe": "os.mkfifo(p)",
    "make a node": "os.mknod(p, 0o600)",
    "move into": "open('theirs', 'w').close(); os.rename('theirs', p)",
    "move a directory into": "os.makedirs('folder', exist_ok=True); os.rename('folder', p)",
    "bind a socket": "socket.socket(socket.AF_UNIX).bind(p)",
    "an unnamed file": "fd = os.open(os.path.dirname(p) or '.', os.O_TMPFILE | os.O_WRONLY); "
    "check(libc.linkat(-100, f'/proc/self/fd/{fd}'.encode(), -100, os.fsencode(p), 0x400))",
}
READS = {
    "read": "said = open(p).read()",
    "read bytes": "said = os.read(os.open(p, os.O_RDONLY), 100).decode()",
    "map": "import mmap; said = mmap.mmap(os.open(p, os.O_RDONLY), 0, prot=mmap.PROT_READ)[:].decode()",
    "copy": "import shutil; said = open(shutil.copy(p, 'mine')).read()",
    "link": "os.link(p, 'mine'); said = open('mine').read()",
    "move": "os.rename(p, 'mine'); said = open('mine').read()",
    "send": "a, b = socket.socketpair(); os.sendfile(a.fileno(), os.open(p, os.O_RDONLY), 0, 100); "
    "said = b.recv(100).decode()",
    "a shell": "import subprocess; said = subprocess.run(['cat', p], capture_output=True, text=True).stdout",
    "a loaded program": "import runpy; said = runpy.run_path(p)['token']",
}
CONNECTIONS = {
    "stream": "socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect(p)",
    "seqpacket": "socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(p)",
    "datagram": "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', p)",
    "pair": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', p)",
}

RUNNER = """
import ctypes, json, os, socket, sys, signal
libc = ctypes.CDLL(None, use_errno=True)
made = json.loads(sys.argv[1]); attempts = json.load(open(sys.argv[2])); here = os.getcwd(); number = 0
def check(result):
    if result != 0: raise OSError(ctypes.get_errno(), 'refused')
def link(to):
    global number
    number += 1
    name = f'{here}/link{os.getpid()}-{number}'
    os.symlink(to, name)
    return name
for index, code in enumerate(attempts):
    child = os.fork()
    if child == 0:
        result = 'T'
        try:
            os.mkdir(f'try{index}'); os.chdir(f'try{index}'); here = os.getcwd()
            names = dict(globals(), **made, said=None)
            exec(code, names)
            if names['said'] is not None: result = 'T' if made['SECRET'] in names['said'] else 'R'
        except BaseException: result = 'R'
        os.write(1, f'{index} {result}\\n'.encode())
        os._exit(0)
    os.waitpid(child, 0)
"""


def attempts(backend: str, outside: Path, home: Path, workspace: Path) -> Iterator[tuple[str, str]]:
    """Yield all attempts, each with a name."""
    places = [outside, home, home / ".ssh"]
    if backend == "bubblewrap":
        places += [workspace / ".git", workspace / ".git/hooks"]
    for place, (naming, name), (what, code) in itertools.product(places, NAMINGS.items(), CHANGES.items()):
        if what.startswith(("remove", "rename", "exchange")) and naming == "a link to the file":
            continue  # that changes the link, which is in the workspace
        file = "config" if place.name == ".git" else "kept"
        yield f"{what} {place.name}/{file} by {naming}", f"D, N = {str(place)!r}, {file!r}\np = {name}\n{code}"
    for place, (naming, name), (what, code) in itertools.product(places, NAMINGS.items(), CREATIONS.items()):
        if "file" not in naming:
            yield f"{what} in {place.name} by {naming}", f"D, N = {str(place)!r}, 'made'\np = {name}\n{code}"
    secrets = [home / ".ssh/key", home / ".config/program/token", home / ".netrc"]
    if backend == "bubblewrap":
        secrets += [workspace / ".env", workspace / "build/deep/prod.env", workspace / "many/7/.env"]
    for file, (naming, name), (what, code) in itertools.product(secrets, NAMINGS.items(), READS.items()):
        yield (
            f"{what} {file.name} by {naming}",
            f"D, N = {str(file.parent)!r}, {file.name!r}\np = {name}\n{code}",
        )
    for (kind, code), (naming, name) in itertools.product(CONNECTIONS.items(), NAMINGS.items()):
        yield f"connect {kind} by {naming}", f"D, N = {str(outside)!r}, 'socket-{kind}'\np = {name}\n{code}"


def controls(workspace: Path) -> Iterator[tuple[str, str]]:
    """Yield what works in the workspace: the attempts are refused for the place and not for a mistake in them."""
    plain = {**CHANGES, **CREATIONS}
    for what, code in plain.items():
        exists = what in CHANGES
        setup = f"D, N = {str(workspace)!r}, 'control'\np = f'{{D}}/{{N}}{{os.getpid()}}'\n"
        yield what, setup + ("open(p, 'w').write('mine')\n" if exists else "") + code
    for what, code in READS.items():
        yield what, f"p = 'own'\nopen(p, 'w').write('token = \"' + SECRET + '\"')\n{code}"


def battery(kind: str, seed: int, most: int) -> dict[str, Any]:
    """Run it; `most` attempts, chosen by the seed, or all of them."""
    import trio

    os.environ[VARIABLE] = kind
    way = backend()
    if way.kind != kind:
        return {"tried": 0, "why_not": "; ".join(way.why_not)}
    base = Path(tempfile.mkdtemp(prefix="callboard-battery-", dir="/var/tmp"))
    try:
        with contextlib.ExitStack() as stack:
            return trio.run(_battery, kind, seed, most, base, stack)
    finally:
        shutil.rmtree(base, ignore_errors=True)


async def _battery(kind: str, seed: int, most: int, base: Path, stack: contextlib.ExitStack) -> dict[str, Any]:
    outside, home, workspace = base / "outside", base / "home", base / "one/two/three/workspace"
    for folder in (outside, home / ".ssh", home / ".config/program", workspace / "build/deep", base / "config"):
        folder.mkdir(parents=True)
    for folder in ("objects", "refs", "hooks"):
        (workspace / ".git" / folder).mkdir(parents=True)
    (workspace / ".git/HEAD").write_text("ref: refs/heads/main\n")
    text = f'token = "{SECRET}"\n'
    kept = [directory / "kept" for directory in (outside, home, home / ".ssh", workspace / ".git/hooks")]
    secrets = [home / ".ssh/key", home / ".config/program/token", home / ".netrc"]
    secrets += [workspace / ".env", workspace / "build/deep/prod.env"]
    for file in (*kept, *secrets, workspace / ".git/config"):
        file.write_text(text)
    for number in range(40):  # so many that they are covered before bubblewrap starts
        (workspace / f"many/{number}").mkdir(parents=True)
        (workspace / f"many/{number}/.env").write_text(text)
    servers = []
    for name in CONNECTIONS:
        family = {"stream": socket.SOCK_STREAM, "seqpacket": socket.SOCK_SEQPACKET}.get(name, socket.SOCK_DGRAM)
        server = stack.enter_context(socket.socket(socket.AF_UNIX, family))
        server.bind(str(outside / f"socket-{name}"))
        if family != socket.SOCK_DGRAM:
            server.listen(1000)
        server.setblocking(False)
        servers.append((name, server))
    chosen = list(attempts(kind, outside, home, workspace))
    random.Random(seed).shuffle(chosen)
    if most:
        chosen = chosen[:most]
    allowed = list(controls(workspace))
    order = workspace / "attempts.json"
    order.write_text(json.dumps([code for _, code in (*chosen, *allowed)]))
    made = json.dumps({"SECRET": SECRET, "PARENT": os.getpid(), "HOME": str(home)})
    sandbox = Sandbox(
        msgspec.convert({"profile": "workspace"}, UserSandbox),
        here=workspace,
        config_dir=base / "config",
        environ={"HOME": str(home), "XDG_CACHE_HOME": str(base / "cache")},
        temporary=LazyDirectory("run-1", lambda: [ProcessDirectoryBase(base / "temporary")]),
        grants=Grants(None, None),
    )
    before = _state(outside, home, workspace / ".git")
    results: dict[int, str] = {}

    async def body(me: Actor) -> None:
        held = await sandbox.held(me, Nature(name="battery"))
        argv = [sys.executable, "-I", "-S", "-c", RUNNER, made, str(order)]
        done = await run_process(me, argv, cwd=workspace, timeout=500, confinement=held)
        for line in done.stdout.decode().splitlines():
            index, _, result = line.partition(" ")
            results[int(index)] = result
        if len(results) < len(chosen) + len(allowed):
            raise AssertionError(f"{len(results)} of {len(chosen)} attempts ended: {done.stderr_tail[-500:]}")

    async with Root() as root:
        await root.spawn(body).wait()
    through = [name for index, (name, _) in enumerate(chosen) if results[index] != "R"]
    for name, server in servers:
        with contextlib.suppress(BlockingIOError):
            server.recv(1) if server.type == socket.SOCK_DGRAM else server.accept()[0].close()
            through.append(f"the socket {name} was reached")
    after = _state(outside, home, workspace / ".git")
    failed = [name for index, (name, _) in enumerate(allowed, len(chosen)) if results[index] != "T"]
    changed = sorted(str(each) for each in before ^ after)
    return {"tried": len(chosen), "through": through, "changed": changed, "controls": failed}


def _state(*tops: Path) -> set[tuple[object, ...]]:
    found = set()
    for path in (each for top in tops for each in (top, *top.rglob("*"))):
        seen = path.lstat()
        found.add((str(path), seen.st_mode, seen.st_uid, seen.st_gid, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns))
    return found


if __name__ == "__main__":
    print(json.dumps(battery(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
