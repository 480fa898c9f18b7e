"""Program that executes lines of shell in a directory, and prints what each of them changed and ran. See `shell_lines`.

    python shell_sandbox.py DIRECTORY < LINES.json > FOUND.json

Imports nothing but the standard library, since it runs without site-packages.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys

REAL = (
    *(
        "bash",
        "sh",
        "dash",
        "zsh",
        "env",
        "timeout",
        "nice",
        "nohup",
        "xargs",
        "find",
        "ls",
        "cat",
        "head",
        "tail",
        "wc",
    ),
    *(
        "grep",
        "cut",
        "tr",
        "diff",
        "date",
        "sed",
        "sort",
        "uniq",
        "awk",
        "git",
        "tar",
        "setsid",
        "stdbuf",
        "ionice",
        "time",
    ),
    *("true", "false", "test", "printf", "echo", "rbash", "tee", "touch"),
)
STUBS = ("rm", "evil", "pytest", "make", "curl", "python3", "parallel", "mv", "vi", "less", "gzip", "ssh")
STUB = '#!/bin/sh\necho "${{0##*/}}" >> {record}\n'


def restore(box: str) -> None:
    """Make the directory as it was before a line changed it."""
    for name in ("work", "home"):
        shutil.rmtree(os.path.join(box, name), ignore_errors=True)
        shutil.copytree(os.path.join(box, "first", name), os.path.join(box, name), symlinks=True)


def build(box: str) -> None:
    """Make the directory as it is before each line."""
    work = os.path.join(box, "first", "work")
    os.makedirs(os.path.join(work, "src"))
    os.makedirs(os.path.join(box, "first", "home"))
    files = {
        "a.txt": "one\ntwo\nolive o\n",
        "b.py": "x = 1\nprint(x)\n",
        "src/x.py": "y = 2\n",
        "sp ace.txt": "z\n",
        "notes.md": "# n\n",
        "rm": "no program\n",
        "-opwn": "",
        "src/--output=pwn": "",
        "s.sh": "evil\ntouch pwn\n",
        "s.sed": "w pwn\n",
        "s.awk": 'BEGIN{system("evil")}\n',
        "../home/a.txt": "home\n",
    }
    for name, text in files.items():
        with open(os.path.join(work, name), "w") as file:
            file.write(text)
    for name in ("run", "src/run", "ls evil", "cat a.txt", "sh", "bash", "évil"):
        shutil.copy(os.path.join(box, "bin", "evil"), os.path.join(work, name))
    subprocess.run(["tar", "cf", "a.tar", "a.txt"], cwd=work, check=True)
    if "git" in os.listdir(os.path.join(box, "bin")):
        for command in ("init -q --template= .", "add a.txt b.py", "commit -q -m x"):
            subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *command.split()], cwd=work, check=True)
        with open(os.path.join(work, "b.py"), "a") as file:
            file.write("x = 2\n")
    restore(box)


def snapshot(box: str) -> dict[str, tuple[int, int, int]]:
    """Return mode, size and time of each file; git refreshes its index when it reads."""
    found = {}
    todo = [os.path.join(box, "work"), os.path.join(box, "home")]
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                state = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    found[entry.path] = (state.st_mode, 0, 0)
                    todo.append(entry.path)
                elif not entry.path.endswith("/.git/index"):
                    found[entry.path] = (state.st_mode, state.st_size, state.st_mtime_ns)
    return found


def execute(line: str, work: str, environment: dict[str, str]) -> None:
    """Execute a line as `execute_command` does, and end all that it leaves behind."""
    argv = ["bash", "-c", 'exec 2>&1; exec bash -c "$1" bash', "bash", line]
    process = subprocess.Popen(
        argv,
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main(box: str) -> None:
    record = os.path.join(box, "record")
    programs = os.path.join(box, "bin")
    os.makedirs(programs)
    for name in STUBS:
        with open(os.path.join(programs, name), "w") as file:
            file.write(STUB.format(record=record))
        os.chmod(os.path.join(programs, name), 0o755)
    for name in REAL:
        where = shutil.which(name, path="/usr/bin:/bin:/usr/local/bin")
        if where is not None:
            os.symlink(where, os.path.join(programs, name))
    environment = {"PATH": programs, "HOME": os.path.join(box, "home"), "LC_ALL": "C.UTF-8"}
    environment |= {"X": "-delete -exec evil {} +", "Y": "rm", "Z": "; touch pwn; `evil` $(evil)", "GIT_PAGER": "cat"}
    work = os.path.join(box, "work")
    os.environ["PATH"] = f"{programs}:/usr/bin:/bin"
    build(box)
    before = snapshot(box)
    found = []
    for line in json.load(sys.stdin):
        if "\0" not in line:
            execute(line, work, environment)
        after = snapshot(box)
        ran = []
        if os.path.exists(record):
            with open(record) as file:
                ran = sorted(set(file.read().split()))
            os.unlink(record)
        changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
        found.append({"changed": [os.path.relpath(path, work) for path in changed][:5], "ran": ran})
        if changed:
            restore(box)
            before = snapshot(box)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
