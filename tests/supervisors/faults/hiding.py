"""Ways of a program to get out of sight of whoever started it: `python hiding.py WAY FIFO`.

Each process of a way holds the fifo open for writing, so that the test sees when the last of them is dead; it says
`hidden` when the program has done what it can.
"""

from __future__ import annotations

import ctypes
import os
import pty
import signal
import sys
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_DUMPABLE, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 4, 15, 36
PTRACE_TRACEME, PTRACE_CONT = 0, 7
CLONE_PARENT = 0x8000
NEW_USER_AND_PIDS = 0x10000000 | 0x20000000
SYS_CLONE = {"x86_64": 56, "aarch64": 220}


def say() -> None:
    os.write(3, b"hidden\n")


def rest() -> None:
    """Live on, deaf to everything that can be ignored."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        try:
            signal.signal(number, signal.SIG_IGN)
        except OSError:
            continue  # one of the C library's own
    while True:
        time.sleep(300)


def daemon() -> None:
    """Fork twice; the grandchild goes on in a session of its own, without environment."""
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    os.environ.clear()
    say()
    rest()


def hops() -> None:
    """Have a new pid every two milliseconds."""
    if os.fork():
        return
    os.setsid()
    say()
    while True:
        if os.fork():
            os._exit(0)
        time.sleep(0.002)


def exec_chain() -> None:
    """Become another program again and again."""
    if os.fork() == 0:
        os.setsid()
        say()
        os.execve("/bin/sh", ["sh", "-c", 'exec sh -c "sleep 0.01; $0" "$0"', 'exec sh -c "sleep 0.01; $0" "$0"'], {})


def twins() -> None:
    """Two that start each other anew."""

    def guard(other: int) -> None:
        os.setsid()
        while True:
            try:
                os.kill(other, 0)
                time.sleep(0.002)
            except ProcessLookupError:
                mine = os.getpid()
                other = os.fork()
                if not other:
                    guard(mine)

    mine = os.getpid()
    if os.fork() == 0:
        say()
        guard(mine)


def answers_sigterm() -> None:
    """Fork at each SIGTERM."""

    def fork(*_: object) -> None:
        if os.fork() == 0:
            os.setsid()

    if os.fork() == 0:
        signal.signal(signal.SIGTERM, fork)
        say()
        while True:
            time.sleep(300)


def spoofed_name() -> None:
    """Have a name that reads like the rest of its line in /proc."""
    if os.fork() == 0:
        os.setsid()
        LIBC.prctl(PR_SET_NAME, b"x) Z 1 1 1 (", 0, 0, 0)
        say()
        rest()


def own_subreaper() -> None:
    """Adopt one's own orphans."""
    if os.fork() == 0:
        os.setsid()
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        daemon()
        rest()


def main_thread_exited() -> None:
    """Live on in a thread."""
    if os.fork() == 0:
        os.setsid()
        threading.Thread(target=rest_in_a_thread).start()
        LIBC.syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)


def rest_in_a_thread() -> None:
    time.sleep(0.01)
    say()
    while True:
        time.sleep(300)


def sibling() -> None:
    """Have a child that is its parent's child."""
    number = SYS_CLONE[os.uname().machine]
    if LIBC.syscall(number, ctypes.c_ulong(CLONE_PARENT), None, None, None, None) == 0:
        os.setsid()
        os.environ.clear()
        say()
        rest()


def not_dumpable() -> None:
    """Show nothing in /proc to anybody but root."""
    if os.fork() == 0:
        LIBC.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
        daemon()
        os._exit(0)


def stopped() -> None:
    """Stand still."""
    if os.fork() == 0:
        os.setsid()
        say()
        os.kill(os.getpid(), signal.SIGSTOP)
        rest()


def traced() -> None:
    """Be traced by another that is hidden, which gets the signals first."""
    if os.fork() == 0:
        os.setsid()
        child = os.fork()
        if child == 0:
            LIBC.ptrace(PTRACE_TRACEME, 0, None, None)
            os.kill(os.getpid(), signal.SIGSTOP)
            say()
            rest()
        while True:
            _, status = os.waitpid(child, 0)
            if os.WIFSTOPPED(status):
                LIBC.ptrace(PTRACE_CONT, child, None, None)  # without the signal that it was stopped for


def own_pid_namespace() -> None:
    """Be process 1 of a namespace, where the kernel permits that."""
    if os.fork() == 0:
        os.setsid()
        LIBC.unshare(NEW_USER_AND_PIDS)
        if os.fork() == 0:
            say()
            rest()
        rest()


def own_terminal() -> None:
    """Lead a session with a terminal."""
    if pty.fork()[0] == 0:
        say()
        rest()
    if os.fork() == 0:
        rest()  # holds the other end of the terminal


def many_sessions() -> None:
    """Be a hundred sessions."""
    for number in range(100):
        if os.fork() == 0:
            os.setsid()
            if number == 99:
                say()
            rest()


WAYS = {
    way.__name__: way
    for way in (
        daemon,
        hops,
        exec_chain,
        twins,
        answers_sigterm,
        spoofed_name,
        own_subreaper,
        main_thread_exited,
        sibling,
        not_dumpable,
        stopped,
        traced,
        own_pid_namespace,
        own_terminal,
        many_sessions,
    )
}

if __name__ == "__main__":
    os.dup2(os.open(sys.argv[2], os.O_WRONLY), 3)
    os.set_inheritable(3, True)
    WAYS[sys.argv[1]]()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        time.sleep(300)
