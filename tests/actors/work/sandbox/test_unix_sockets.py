"""Unix sockets of other programs, and those of the run itself, from within a sandbox."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sandbox_surroundings import BACKENDS, PYTHON_ALONE, World, need, world

TYPES = {"stream": socket.SOCK_STREAM, "datagram": socket.SOCK_DGRAM, "seqpacket": socket.SOCK_SEQPACKET}

# Each way by which a program can name the address of a socket. `kind` and `address` are put before it.
WAYS = {
    "connect": "s = socket.socket(socket.AF_UNIX, kind); s.connect(address); s.send(b'x')",
    "connect without blocking": "s = socket.socket(socket.AF_UNIX, kind); s.setblocking(False); s.connect(address); "
    "s.send(b'x')",
    "sendto": "s = socket.socket(socket.AF_UNIX, kind); s.sendto(b'x', address)",
    "sendmsg": "s = socket.socket(socket.AF_UNIX, kind); s.sendmsg([b'x'], [], 0, address)",
    "sendto of a pair": "a, b = socket.socketpair(socket.AF_UNIX, kind); a.sendto(b'x', address)",
    "connect of a pair": "a, b = socket.socketpair(socket.AF_UNIX, kind); a.connect(address); a.send(b'x')",
    "connect of a pair whose peer is closed": "a, b = socket.socketpair(socket.AF_UNIX, kind); b.close(); "
    "a.connect(address); a.send(b'x')",
    "through a link in the workspace": "os.symlink(address, 'way'); s = socket.socket(socket.AF_UNIX, kind); "
    "s.connect('way'); s.send(b'x')",
    "through a link of /proc": "d = os.open(os.path.dirname(address), os.O_PATH); "
    "s = socket.socket(socket.AF_UNIX, kind); "
    "s.connect(f'/proc/self/fd/{d}/' + os.path.basename(address)); s.send(b'x')",
    "through an open descriptor": "d = os.open(address, os.O_PATH); s = socket.socket(socket.AF_UNIX, kind); "
    "s.connect(f'/proc/self/fd/{d}'); s.send(b'x')",
    "from its own directory": "os.chdir(os.path.dirname(address)); s = socket.socket(socket.AF_UNIX, kind); "
    "s.connect(os.path.basename(address)); s.send(b'x')",
    "a hard link": "os.link(address, 'mine'); s = socket.socket(socket.AF_UNIX, kind); s.connect('mine'); s.send(b'x')",
    "a rename": "os.rename(address, 'mine'); s = socket.socket(socket.AF_UNIX, kind); s.connect('mine'); s.send(b'x')",
    "an address that changes meanwhile": """
import ctypes, threading
libc = ctypes.CDLL(None, use_errno=True)
own = socket.socket(socket.AF_UNIX, kind); own.bind('own')
if kind != socket.SOCK_DGRAM: own.listen()
raw = os.fsencode(address) if isinstance(address, str) else address
both = [b'\\1\\0' + name.ljust(108, b'\\0') for name in (b'own', raw)]
buffer = ctypes.create_string_buffer(both[0], 110)
def change():
    for n in range(20000): ctypes.memmove(buffer, both[n % 2], 110)
thread = threading.Thread(target=change); thread.start()
while thread.is_alive():
    s = socket.socket(socket.AF_UNIX, kind); s.setblocking(False)
    if libc.connect(s.fileno(), buffer, 110) == 0: s.send(b'x')
    s.close()
""",
    "a link that changes meanwhile": """
import threading
own = socket.socket(socket.AF_UNIX, kind); own.bind('own')
if kind != socket.SOCK_DGRAM: own.listen()
def change():
    for n in range(2000): os.symlink(address if n % 2 else 'own', f'new{n}'); os.rename(f'new{n}', 'way')
thread = threading.Thread(target=change); thread.start()
while thread.is_alive():
    s = socket.socket(socket.AF_UNIX, kind); s.setblocking(False)
    try: s.connect('way'); s.send(b'x')
    except OSError: pass
    s.close()
""",
}
NAMED_ALONE = ("through", "from its own", "a hard link", "a rename", "a link that")

SETUP = "import os, socket\nkind = socket.SocketKind({kind})\naddress = {address!r}\n"


@contextlib.contextmanager
def listening(address: str, kind: int) -> Iterator[socket.socket]:
    """A server outside of the sandbox."""
    with socket.socket(socket.AF_UNIX, kind) as server:
        server.bind(address)
        if kind != socket.SOCK_DGRAM:
            server.listen()
        server.setblocking(False)
        yield server


def was_reached(server: socket.socket) -> bool:
    """Return whether a connection or a datagram has arrived. The attempt has ended, so nothing is on its way."""
    try:
        server.recv(1) if server.type == socket.SOCK_DGRAM else server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def visible() -> Iterator[Path]:
    """A directory that the process can see, unlike those in /tmp, and may not write."""
    directory = Path(tempfile.mkdtemp(dir="/var/tmp"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


async def attempt(there: World, way: str, kind: int, address: str, network: object) -> str:
    """Run one of the ways in the sandbox; return its error."""
    code = SETUP.format(kind=int(kind), address=address) + WAYS[way]
    sandbox = there.sandbox(network=network)
    done = await there.run([*PYTHON_ALONE, code], sandbox)
    sandbox.remove()
    for path in there.workspace.iterdir():
        if path.name != "code.txt":
            path.unlink()
    return done.stderr_tail


@pytest.mark.sample(6)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("network", ["ask", "on", "off"])
async def test_no_socket_of_another_program_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, type: str, backend: str, network: str
) -> None:
    need(backend, monkeypatch)
    kind = TYPES[type]
    addresses = {}
    with world(tmp_path) as there, visible() as directory:
        addresses["named"] = str(directory / "socket")
        if not way.startswith(NAMED_ALONE):
            addresses["abstract"] = f"\0callboard-test-{os.getpid()}-{there.victim.pid}-{type}"
        for name, address in addresses.items():
            with listening(address, kind) as server:
                error = await attempt(there, way, kind, address, network)
                assert not was_reached(server), (name, error)


@pytest.mark.parametrize("way", ["connect", "sendto", "sendto of a pair"])
async def test_without_a_sandbox_the_same_datagram_arrives(tmp_path: Path, way: str) -> None:
    with world(tmp_path) as there, visible() as directory, listening(f"{directory}/s", socket.SOCK_DGRAM) as server:
        code = SETUP.format(kind=int(socket.SOCK_DGRAM), address=f"{directory}/s") + WAYS[way]
        await there.run([*PYTHON_ALONE, code], there.sandbox(profile="off"))
        assert was_reached(server)


OWN = """
import os, socket, sys, threading
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    for address in sys.argv[1:]:
        address = address.replace('@', chr(0)) if address.startswith('@') else address
        server = socket.socket(socket.AF_UNIX, kind); server.bind(address); server.listen()
        thread = threading.Thread(target=lambda: server.accept()[0].send(b'hello')); thread.start()
        client = socket.socket(socket.AF_UNIX, kind); client.connect(address)
        assert client.recv(10) == b'hello'
        thread.join()
        if not address.startswith(chr(0)): os.unlink(address)
        server.close()
        pair = socket.socketpair(socket.AF_UNIX, kind); pair[0].send(b'x'); assert pair[1].recv(1) == b'x'
print('ok')
"""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("network", ["ask", "on", "off"])
@pytest.mark.sample(3)
async def test_sockets_of_the_run_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, network: str
) -> None:
    need(backend, monkeypatch)
    with world(tmp_path) as there:
        sandbox = there.sandbox(network=network)
        addresses = ["relative", str(there.workspace / "absolute")]
        if backend == "bubblewrap":
            addresses.append("/tmp/socket")
            if network != "on":
                addresses.append("@abstract")
        done = await there.run([*PYTHON_ALONE, OWN, *addresses], sandbox)
        assert (done.stdout, done.stderr_tail) == (b"ok\n", "")
        sandbox.remove()


FULL = """
import os, socket, threading
server = socket.socket(socket.AF_UNIX); server.bind('full'); server.listen(0)
clients = [socket.socket(socket.AF_UNIX) for _ in range(4)]
threads = [threading.Thread(target=each.connect, args=('full',)) for each in clients]
for each in threads: each.start()
other = socket.socket(socket.AF_UNIX); other.bind('other'); other.listen()
socket.socket(socket.AF_UNIX).connect('other')
for _ in clients: server.accept()
for each in threads: each.join()
print('ok')
"""


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_connection_that_waits_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    need(backend, monkeypatch)
    with world(tmp_path) as there:
        done = await there.run([*PYTHON_ALONE, FULL], there.sandbox())
        assert (done.stdout, done.stderr_tail) == (b"ok\n", "")


WRONG = """
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def refused(*arguments):
    assert libc.connect(*arguments) == -1
    print(errno.errorcode[ctypes.get_errno()])
s = socket.socket(socket.AF_UNIX)
refused(s.fileno(), ctypes.c_void_p(8), 110)
refused(s.fileno(), ctypes.c_void_p(2**64 - 8), 110)
refused(s.fileno(), b'x' * 300, 300)
refused(s.fileno(), b'', -1)
refused(s.fileno(), b'', 0)
refused(s.fileno(), b'\\1\\0', 2)
refused(1000, b'\\1\\0x\\0', 4)
refused(0, b'\\1\\0code.txt\\0', 11)
refused(s.fileno(), b'\\1\\0missing\\0', 10)
refused(s.fileno(), b'\\2\\0missing\\0' + bytes(10), 20)
"""


@pytest.mark.parametrize("backend", BACKENDS)
async def test_arguments_that_make_no_sense_are_errors_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    need(backend, monkeypatch)
    with world(tmp_path) as there:
        done = await there.run([*PYTHON_ALONE, WRONG], there.sandbox())
    assert done.status == 0, done.stderr_tail
    numbers = ["EFAULT", "EFAULT", "EINVAL", "EINVAL", "EINVAL", "EINVAL", "EBADF", "ENOTSOCK", "ENOENT", "EINVAL"]
    assert done.stdout.decode().split() == numbers


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_socket_that_the_user_names_under_write_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    need(backend, monkeypatch)
    with world(tmp_path) as there, visible() as directory, listening(f"{directory}/s", socket.SOCK_STREAM) as server:
        code = SETUP.format(kind=int(socket.SOCK_STREAM), address=f"{directory}/s") + WAYS["connect"]
        done = await there.run([*PYTHON_ALONE, code], there.sandbox(write=[f"{directory}/s"]))
        assert done.status == 0, done.stderr_tail
        assert was_reached(server)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("network", ["ask", "on"])
async def test_no_descriptor_of_a_namespace_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, network: str
) -> None:
    need(backend, monkeypatch)
    code = "import os\nfor n in os.listdir('/proc/self/fd'):\n    try: print(n, os.readlink(f'/proc/self/fd/{n}'))\n"
    code += "    except OSError: pass"
    with world(tmp_path) as there:
        done = await there.run([*PYTHON_ALONE, code], there.sandbox(network=network))
    lines = done.stdout.decode().splitlines()
    assert sorted(line.split()[0] for line in lines) == ["0", "1", "2"]
