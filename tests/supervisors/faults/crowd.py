"""Idle processes that have nothing to do with whoever looks: forks of one small program, cheap even by the thousand.

    python crowd.py <how many>      prints "up" when all are there; ends them when its stdin does

They are orphans, so that nobody's descendants are among them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def crowd(number: int) -> Iterator[None]:
    """So many strangers, while the block lasts."""
    argv = [sys.executable, "-I", "-S", __file__, str(number)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield
        process.stdin.close()
        assert process.stdout.read() == b"over\n"


def main(number: int) -> None:
    """Fork them from a process that is gone itself, and wait."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            _stand(number, read, write)
        os._exit(0)
    os.wait()
    os.close(read)
    sys.stdin.read()
    os.write(write, b"over")


def _stand(number: int, read: int, write: int) -> None:
    pids = []
    os.close(write)
    for _ in range(number):
        pid = os.fork()
        if pid == 0:
            os.closerange(0, 3)
            signal.pause()
        pids.append(pid)
    print("up", flush=True)
    os.read(read, 4)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)
    print("over", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
