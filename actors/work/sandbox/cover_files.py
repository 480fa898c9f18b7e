"""Program that covers files inside the mounts of a sandbox after bubblewrap has made them. It imports no callboard
code.

    python cover_files.py cover FILES SOCKET INNER BWRAP... -- python cover_files.py wait INNER COMMAND...

bubblewrap parses the whole mount table again for each mount, and copies all mounts that existed before. Thousands of
mounts made before bubblewrap starts therefore cost seconds. Made afterwards they cost only the kernel's own time: 0.1 s
for 5,000.

`cover` forks. The child stays outside of the sandbox while the parent becomes bubblewrap. The first program in the
sandbox is `wait`: it sends its mount namespace over the socket, and starts the command after the answer that every file
is covered. If the child fails or is killed, no such answer arrives and the command is not started.

FILES is a descriptor of records that end with a zero byte: device and inode of a file's directory, then the file's
path. If the directory at that path has another identity, a concurrent process has moved it. Its files would be readable
at the new path, so that is a failure too. A file that is missing from its directory is skipped.
"""

import ctypes
import fcntl
import os
import signal
import socket
import stat
import sys

BIND, REMOUNT, NO_SET_ID, NO_DEVICES, NO_PROGRAMS, READ_ONLY = 0x1000, 0x20, 0x2, 0x4, 0x8, 0x1
NEW_MOUNTS, NEW_USER = 0x00020000, 0x10000000
OWNER_OF = 0xB701  # NS_GET_USERNS

DONE = b"covered"
NOT_STARTED = 125


def cover(files: int, ours: int, inner: int, command: list[str]) -> None:
    """Become `command`, bubblewrap, after forking a child that covers the files in its mounts."""
    environ = _environ()
    if os.fork() == 0:
        os.close(inner)  # an open copy would hide the end of bubblewrap from the child
        with socket.socket(fileno=ours) as channel:
            try:
                _cover_in(channel, files)
            except OSError as error:
                channel.sendall(f"{error.strerror}: {error.filename}".encode(errors="replace"))
        os._exit(0)
    os.close(ours)
    os.close(files)
    os.set_inheritable(inner, True)
    _execute(command, environ)


def wait(inner: int, command: list[str]) -> None:
    """Become `command` once the files are covered; exit with `NOT_STARTED` if they are not. Runs in the sandbox."""
    environ = _environ()
    with socket.socket(fileno=inner) as channel:
        mounts = os.open("/proc/self/ns/mnt", os.O_RDONLY)
        socket.send_fds(channel, [b"mounts"], [mounts])
        os.close(mounts)
        answer = b""
        while part := channel.recv(4096):
            answer += part
    if answer != DONE:
        why = answer.decode(errors="replace") or "the helper that hides secret files from the sandbox exited"
        _exit(f"the command was not started: {why}", NOT_STARTED)
    try:
        _execute(command, environ)
    except OSError as error:
        _exit(f"{command[0]}: {error.strerror}", 127 if isinstance(error, FileNotFoundError) else 126)


def _exit(why: str, status: int) -> None:
    sys.stderr.write(f"callboard: {why}\n")
    sys.exit(status)


def _cover_in(channel: socket.socket, files: int) -> None:
    with os.fdopen(files, "rb") as file:
        records = [record for record in file.read().split(b"\0") if record]
    _, received, _, _ = socket.recv_fds(channel, 16, 1)
    if not received:
        return  # bubblewrap has failed and reports the reason itself
    (mounts,) = received
    libc = ctypes.CDLL(None, use_errno=True)
    if os.getuid() != 0:
        owner = fcntl.ioctl(mounts, OWNER_OF)  # user namespace of those mounts, created by this user
        _checked(libc.setns(owner, NEW_USER), "can't enter the sandbox's user namespace", "")
    _checked(libc.setns(mounts, NEW_MOUNTS), "can't enter the sandbox's mount namespace", "")
    above, directory = b"", -1
    for record in records:
        device, inode, path = record.split(b":", 2)
        if os.path.dirname(path) != above:
            if directory >= 0:
                os.close(directory)
            above = os.path.dirname(path)
            directory = _directory(above, (int(device), int(inode)))
            # Relative names: if the directory is renamed from here on, the cover moves with it.
            os.fchdir(directory)
        _cover(libc, os.path.basename(path), path)
    channel.sendall(DONE)


def _directory(path: bytes, identity: tuple[int, int]) -> int:
    try:
        directory = os.open(path, os.O_PATH | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        raise _moved(path) from None
    found = os.fstat(directory)
    if (found.st_dev, found.st_ino) != identity:
        raise _moved(path)
    return directory


def _cover(libc: ctypes.CDLL, name: bytes, path: bytes) -> None:
    try:
        mode = os.lstat(name).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise _moved(path)
    target = b"./" + name
    flags = REMOUNT | BIND | NO_SET_ID | NO_DEVICES | NO_PROGRAMS | READ_ONLY
    _checked(
        libc.mount(b"/dev/null", target, None, ctypes.c_ulong(BIND), None), "can't be hidden from the sandbox", path
    )
    _checked(libc.mount(None, target, None, ctypes.c_ulong(flags), None), "can't be hidden from the sandbox", path)


def _moved(path: bytes) -> OSError:
    return OSError(0, "a secret file was moved while the command started; run it again", os.fsdecode(path))


def _environ() -> dict[bytes, bytes]:
    """Return the environment as received from the parent: Python adds LC_CTYPE to `os.environ`."""
    with open("/proc/self/environ", "rb") as file:
        return dict(each.split(b"=", 1) for each in file.read().split(b"\0") if b"=" in each)


def _execute(command: list[str], environ: dict[bytes, bytes]) -> None:
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these signals, and the command would inherit that
        signal.signal(ignored, signal.SIG_DFL)
    os.execvpe(command[0], command, environ)  # noqa: S606 - the command as received


def _checked(result: int, what: str, where: bytes | str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what} ({os.strerror(number)})", os.fsdecode(where))


if __name__ == "__main__":
    if sys.argv[1] == "cover":
        cover(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
    else:
        wait(int(sys.argv[2]), sys.argv[3:])
