"""Processes that try to get out of their sandbox, each in a way of its own, with every backend."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from support.sandbox_surroundings import BACKENDS, PYTHON_ALONE, SECRET, need, world

SYSCALL = "import ctypes, os; call = ctypes.CDLL(None, use_errno=True).syscall\n"

SHELL = {
    "write outside": "echo x > $OUTSIDE/made",
    "append to a file outside": "echo x >> $OUTSIDE/kept",
    "remove a file outside": "rm -f $OUTSIDE/kept",
    "move a file of outside into the workspace": "mv $OUTSIDE/kept .",
    "truncate a file outside": ": > $OUTSIDE/kept",
    "make a directory outside": "mkdir $OUTSIDE/made",
    "change a mode outside": "python3 -c \"import os; open(os.environ['OUTSIDE'] + '/made', 'w')\"",
    "write by a symbolic link in the workspace": "ln -s $OUTSIDE way; echo x > way/made",
    "write by dots": "echo x > $WORKSPACE/../outside/made",
    "write by /proc/self/cwd": "cd /; echo x > /proc/self/root$OUTSIDE/made; cd $WORKSPACE; echo x > "
    "/proc/self/cwd/../outside/made",
    "write by the root of another process": "echo x > /proc/$HOST/root$OUTSIDE/made; "
    "echo x > /proc/1/root$OUTSIDE/made",
    "a hard link of a file outside": "ln $OUTSIDE/kept mine && echo x >> mine",
    "rename over a file outside": "echo x > new; mv -f new $OUTSIDE/kept",
    "write into the home directory": "echo x > $HOME/.bashrc; echo x >> $HOME/.profile",
    "read a key": "cat $HOME/.ssh/id",
    "read a key by a link": "ln -s $HOME/.ssh/id id; cat id",
    "read a key by /proc": "cat /proc/self/root$HOME/.ssh/id /proc/$HOST/root$HOME/.ssh/id",
    "read credentials": "cat $HOME/.aws/*; grep -r secret $HOME/.aws",
    "read our own configuration": "cat $CONFIG/config.yaml",
    "copy the home directory": "cp -r $HOME . ; cat home/.ssh/id home/.aws/credentials",
    "hard link a key": "ln $HOME/.ssh/id id && cat id",
    "the environment of another process": "tr '\\0' '\\n' < /proc/$VICTIM/environ; cat /proc/*/environ",
    "the memory of another process": "cat /proc/$VICTIM/maps && dd if=/proc/$VICTIM/mem bs=1 count=1",
    "end another process": "kill -9 $VICTIM; kill -9 -- -$VICTIM",
    "a written script": "echo 'echo x > $OUTSIDE/made; cat $HOME/.ssh/id' > s.sh; chmod +x s.sh; bash s.sh; sh ./s.sh",
    "a shebang": "printf '#!/bin/sh\\ncat $HOME/.ssh/id; echo x > $OUTSIDE/made\\n' > s; chmod +x s; ./s",
    "env and xargs": 'env -i /bin/sh -c "cat $HOME/.ssh/id"; echo $HOME/.ssh/id | xargs cat',
    "find -exec": "find $HOME -type f -exec cat {} +",
    "mount": "mkdir m; mount -t tmpfs none m; mount --bind $HOME/.ssh m; cat m/id",
    "unmount what hides": "umount $HOME/.ssh; umount -l $HOME/.ssh; cat $HOME/.ssh/id",
    "a user namespace": f"unshare -Urm sh -c 'umount {'$HOME'}/.ssh; mount --bind $OUTSIDE . ; echo x > made'",
    "enter another's namespaces": "nsenter -t 1 -a cat $HOME/.ssh/id; nsenter -t $HOST -a cat $HOME/.ssh/id",
    "change the root": "chroot / cat $HOME/.ssh/id; chroot /proc/1/root cat $HOME/.ssh/id",
    "a device of the disk": "mknod d b 254 0; dd if=d count=1; for d in /dev/vd* /dev/sd* /dev/nvme*; do "
    "head -c 1 $d && echo x > $OUTSIDE/made; done; ls /dev/mem && head -c 1 /dev/mem",
    "TCP to this machine": "exec 3<>/dev/tcp/127.0.0.1/$PORT && echo hello >&3",
    "a library put before others": "echo 'x' > lib.so; LD_PRELOAD=$PWD/lib.so cat $HOME/.ssh/id",
    "a setuid program": "cp /bin/cat mine; chmod u+s mine; ./mine $HOME/.ssh/id; su -c 'cat $HOME/.ssh/id'; "
    "sudo -n cat $HOME/.ssh/id",
    "a daemon that stays": "(setsid sh -c 'sleep 1; echo x > $OUTSIDE/made; cat $HOME/.ssh/id' >/dev/null 2>&1 &)",
    "cron and at": "echo '* * * * * true' | crontab -; echo 'touch $OUTSIDE/made' | at now",
    "settings of the kernel": "echo x > /proc/sys/kernel/hostname; echo c > /proc/sysrq-trigger; hostname made-up",
    "a control group": "mkdir /sys/fs/cgroup/made && echo x > $OUTSIDE/made",
}

PYTHON = {
    "ptrace": SYSCALL
    + "assert call(101 if os.uname().machine == 'x86_64' else 117, 16, int(os.environ['VICTIM']), 0, 0)"
    "\nprint(open(f\"/proc/{os.environ['VICTIM']}/environ\").read())",
    "ptrace of our own parent": SYSCALL + "print(call(101, 16, os.getppid(), 0, 0)); assert ctypes.get_errno() == 1",
    "process_vm_readv": SYSCALL + "assert call(310, int(os.environ['VICTIM']), 0, 0, 0, 0, 0) == -1; "
    "assert ctypes.get_errno() == 1",
    "the kernel's keys": SYSCALL + "assert call(250, 0, -3, 0) == -1; assert ctypes.get_errno() == 1",
    "BPF": SYSCALL + "assert call(321, 0, 0, 0) == -1; assert ctypes.get_errno() == 1",
    "io_uring": SYSCALL + "assert call(425, 1, 0) == -1; assert ctypes.get_errno() == 1",
    "a handle of a file": SYSCALL + "assert call(304, -100, 0, 0) == -1; assert ctypes.get_errno() == 1",
    "a new mount by descriptors": SYSCALL + "assert call(428, -100, b'/', 1) == -1; assert ctypes.get_errno() == 1",
    "userfaultfd": SYSCALL + "assert call(323, 0) == -1; assert ctypes.get_errno() == 1",
    "performance events": SYSCALL + "assert call(298, 0, 0, -1, -1, 0) == -1; assert ctypes.get_errno() == 1",
    "clone with a namespace": SYSCALL
    + "assert call(56, 0x10000000 | 17, 0, 0, 0, 0) == -1; assert ctypes.get_errno() == 1",
    "clone3": SYSCALL + "assert call(435, 0, 0) == -1; assert ctypes.get_errno() == 38",
    "typing into a terminal": SYSCALL + "import fcntl, pty, termios\nmaster, slave = pty.openpty()\n"
    "try: fcntl.ioctl(slave, termios.TIOCSTI, b'x'); raise SystemExit('typed')\nexcept PermissionError: pass",
    "an abstract socket": "import os, socket; socket.socket(socket.AF_UNIX).connect('\\0' + os.environ['ABSTRACT'])",
    "a socket of another program": "import os, socket; socket.socket(socket.AF_UNIX).connect(os.environ['SOCKET'])",
    "TCP over IPv6": "import os, socket; socket.create_connection(('::1', int(os.environ['PORT6'])), 2)",
    "an IPv4 address as IPv6": "import os, socket; s = socket.socket(socket.AF_INET6); s.settimeout(2); "
    "s.connect(('::ffff:127.0.0.1', int(os.environ['PORT'])))",
    "UDP": "import os, socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', "
    "int(os.environ['UDP'])))",
    "a raw socket": "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW); print('the-secret-of-the-host')",
    "the address of the cloud's metadata": "import socket\ntry: socket.create_connection(('169.254.169.254', 80), 1)\n"
    "except OSError: pass\nelse: print('the-secret-of-the-host')",
    "a name of the DNS": "import socket\ntry: socket.getaddrinfo('example.com', 80)\nexcept OSError: pass\n"
    "else: print('the-secret-of-the-host')",
    "our own memory": "import os\nfor pid in ('self', os.environ['HOST'], '1'):\n"
    "    try: f = open(f'/proc/{pid}/mem', 'r+b'); f.seek(4096); f.write(b'x')\n    except (OSError, ValueError): pass",
    "a descriptor of another process": SYSCALL + "fd = call(434, int(os.environ['VICTIM']), 0)\n"
    "assert call(438, fd, 0, 0) == -1",
    "a shared memory of others": "import ctypes; print(ctypes.CDLL(None).shmget(4711, 0, 0))",
}

ATTEMPTS = [
    *((name, ["bash", "-c", code]) for name, code in SHELL.items()),
    *((name, [*PYTHON_ALONE, code]) for name, code in PYTHON.items()),
]


@pytest.mark.sample(10)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("name", "argv"), ATTEMPTS, ids=[name for name, _ in ATTEMPTS])
async def test_an_attempt_to_get_out_comes_to_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, name: str, argv: list[str]
) -> None:
    need(backend, monkeypatch)
    if "SYSCALL" in name or (argv[0] == sys.executable and "call(" in argv[-1] and os.uname().machine != "x86_64"):
        pytest.skip("the numbers of these calls are those of x86_64")
    with world(tmp_path) as there:
        sandbox = there.sandbox()
        done = await there.run(argv, sandbox)
        assert there.harm(done) == [], (done.stdout, done.stderr_tail)
        if "assert" in argv[-1]:
            assert "AssertionError" not in done.stderr_tail, done.stderr_tail
        sandbox.remove()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["an abstract socket", "a socket of another program"])
async def test_a_network_leads_to_no_program_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, name: str
) -> None:
    way = need(backend, monkeypatch)
    if way.abi < 6 and backend == "bubblewrap" and name == "an abstract socket":
        pytest.skip("abstract sockets are kept out from Linux 6.12 on")
    with world(tmp_path) as there:
        sandbox = there.sandbox(network="on")
        done = await there.run([*PYTHON_ALONE, PYTHON[name]], sandbox)
        assert done.status == 1
        assert there.harm(done) == []
        reached = "import os, socket; socket.create_connection(('127.0.0.1', int(os.environ['PORT'])), 20)"
        done = await there.run([*PYTHON_ALONE, reached], sandbox)
        assert done.status == 0, done.stderr_tail


@pytest.mark.parametrize("name", ["write outside", "read a key", "TCP to this machine", "end another process"])
async def test_without_a_sandbox_the_same_attempts_succeed(tmp_path: Path, name: str) -> None:
    with world(tmp_path) as there:
        done = await there.run(["bash", "-c", SHELL[name]], there.sandbox(profile="off"))
        assert there.harm(done)


@pytest.mark.parametrize("times", [1_000, pytest.param(10_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_link_that_is_swapped_all_the_time_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, times: int
) -> None:
    need(backend, monkeypatch)
    swap = (
        "import os, sys\nfor n in range(int(sys.argv[1])):\n"
        "    os.symlink(os.environ['OUTSIDE'] if n % 2 else '.', 'new'); os.rename('new', 'way')\n"
        "    try: open('way/made', 'w').write('x')\n    except OSError: pass\n"
    )
    with world(tmp_path) as there:
        done = await there.run([sys.executable, "-c", swap, str(times)], there.sandbox())
        assert done.status == 0, done.stderr_tail
        assert there.harm(done) == []
        assert (there.workspace / "made").exists()


@pytest.mark.parametrize("backend", BACKENDS)
async def test_the_whole_machine_is_no_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    need(backend, monkeypatch)
    with world(tmp_path) as there:
        (there.workspace / "kept").touch()
        done = await there.run(["sh", "-c", "echo x > made; rm kept; ls"], there.sandbox(here=Path("/")))
        assert (done.stdout, there.harm(done)) == (b"code.txt\nkept\n", [])


async def test_git_reads_no_command_that_a_process_has_left_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("bubblewrap", monkeypatch)
    with world(tmp_path) as there:
        git = there.workspace / ".git"
        (git / "hooks").mkdir(parents=True)
        (git / "config").write_text("[core]\n")
        plant = (
            "git config core.fsmonitor evil; echo 'fsmonitor = evil' >> .git/config; echo evil > .git/hooks/pre-push; "
            "mv .git .old; mkdir .git && cp -r .old/* .git/ && echo evil >> .git/config; mv .git/hooks .git/o; "
            "rm -rf .git/hooks; touch .git/index.lock && echo written"
        )
        done = await there.run(["bash", "-c", plant], there.sandbox())
        assert "written" in done.stdout.decode()
        assert (git / "config").read_text() == "[core]\n"
        assert list((git / "hooks").iterdir()) == []


async def test_git_itself_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("bubblewrap", monkeypatch)
    with world(tmp_path) as there:
        git = "git -c user.name=a -c user.email=a@b.example"
        subprocess.run(["git", "init", "-q", there.workspace], check=True)
        work = f"{git} add code.txt && {git} commit -qm first && {git} checkout -qb other && git log -1"
        done = await there.run(["bash", "-c", f"{work}; echo x >> code.txt; {git} diff --stat"], there.sandbox())
        assert done.status == 0, done.stderr_tail
        assert b"first" in done.stdout
        assert b"1 insertion" in done.stdout
        assert there.harm(done) == []


async def test_an_env_file_of_the_workspace_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("bubblewrap", monkeypatch)
    with world(tmp_path) as there:
        (there.workspace / "deep").mkdir()
        for name in (".env", ".env.local", "deep/.env", ".env.example"):
            (there.workspace / name).write_text(name)
        done = await there.run(
            ["bash", "-c", "cat .env .env.local deep/.env .env.example; mv .env x; cat x"], there.sandbox()
        )
        assert done.stdout == b".env.example"
        assert (there.workspace / ".env").read_text() == ".env"


def _mounts(mine: Path) -> list[str]:
    """Return the mounts of this namespace, without those that other tests make for full disks meanwhile."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [Path(line.split()[4]) for line in lines]
    temporary = Path(tempfile.gettempdir())
    return [
        line
        for line, point in zip(lines, points, strict=True)
        if point.is_relative_to(mine) or not point.is_relative_to(temporary) or point == temporary
    ]


def _open() -> Counter[str]:
    """Count the open files of this process, by what they are."""
    found: Counter[str] = Counter()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the descriptor of this listing
            found[str(path.readlink())] += 1
    return found


@pytest.mark.parametrize("calls", [20, pytest.param(1_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.sample(1)
async def test_what_is_left_of_a_thousandth_call_is_what_was_left_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, calls: int
) -> None:
    need(backend, monkeypatch)
    with world(tmp_path) as there:
        sandbox = there.sandbox()
        await there.run(["true"], sandbox)
        mounts, files = _mounts(tmp_path), _open()
        for _ in range(calls):
            await there.run(["sh", "-c", "echo x > $TMPDIR/x 2>/dev/null || echo x > /tmp/x"], sandbox)
        assert _mounts(tmp_path) == mounts
        assert not _open() - files  # files of earlier tests in this process may be closed meanwhile
        sandbox.remove()
        assert list((there.workspace.parent / "temporary").iterdir()) == []


@pytest.mark.parametrize("backend", BACKENDS)
async def test_what_the_user_starts_is_not_changed_though_it_lies_in_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    need(backend, monkeypatch)
    with world(tmp_path) as there:
        agent = there.config / "agents" / "a" / "tools.sh"
        agent.parent.mkdir(parents=True)
        agent.write_text("echo mine\n")
        (tmp_path / "beside").touch()
        started = there.home / ".bashrc"
        started.write_text("echo mine\n")
        plant = f"cat {agent}; echo evil >> {agent}; mv {there.config} {tmp_path}/c; cat {there.config}/config.yaml; "
        plant += f"touch {there.config}/agents/new; echo evil >> {started}; echo written >> {tmp_path}/beside"
        done = await there.run(["bash", "-c", plant], there.sandbox(here=tmp_path))
        assert b"echo mine" in done.stdout
        assert SECRET.encode() not in done.stdout
        assert agent.read_text() == "echo mine\n"
        assert sorted(path.name for path in agent.parent.parent.iterdir()) == ["a"]
        assert started.read_text() == "echo mine\n"
        assert (tmp_path / "beside").read_text() == "written\n"
