"""Submodules in a sandbox: a process leaves no repository that git enters by itself.

`git status` enters the directory of each submodule in the index, and runs what the configuration of the repository
there says (`core.fsmonitor`).
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
from support.sandbox_surroundings import need, world

from callboard.supervisors.syscall_broker import gitlinks

ENV = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{role}_{what}": "a@b.example" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}
NAMES = "".join(f"export {name}={value}; " for name, value in ENV.items() if name.startswith("GIT_"))


def git(directory: Path, *words: str) -> str:
    """Run git outside of the sandbox."""
    command = ["git", "-c", "protocol.file.allow=always", *words]
    return subprocess.run(command, cwd=directory, env=ENV, check=True, capture_output=True).stdout.decode()


def random_index(chance: random.Random, directory: Path, options: list[str]) -> set[str]:
    """Make a repository with an index of random files and submodules; return the paths of the submodules."""
    git(directory, "init", "-q", *options[:1])
    for option in options[1:]:
        git(directory, "config", *option.split("="))
    object_name = git(directory, "hash-object", "-w", "/dev/null").strip()
    parts = ["p" + "".join(chance.choices("ab\xe9.-", k=chance.randint(0, 12))) for _ in range(30)]
    links, lines = set(), []
    for number in range(chance.choice((1, 50, 400))):
        path = "/".join((*chance.choices(parts, k=chance.randint(0, 6)), f"x{number}"))
        mode = chance.choice(("100644", "100755", "120000", "160000"))
        if mode == "160000":
            links.add(path)
        lines.append(f"{mode} {object_name}\t{path}\0")
    subprocess.run(
        ["git", "update-index", "-z", "--index-info"], cwd=directory, env=ENV, check=True, input="".join(lines).encode()
    )
    return links


@pytest.mark.parametrize("seed", range(12))
def test_every_submodule_of_an_index_is_found(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    options = [
        chance.choice(("--object-format=sha1", "--object-format=sha256")),
        f"index.version={chance.choice((2, 3, 4))}",
        f"index.threads={chance.choice((1, 2))}",
    ]
    links = random_index(chance, tmp_path, options)
    listed = git(tmp_path, "ls-files", "-sz").split("\0")
    assert {line.split("\t")[1] for line in listed if line.startswith("160000")} == links
    size = 32 if "sha256" in options[0] else 20
    index = (tmp_path / ".git/index").read_bytes()
    assert gitlinks(index, size) == {os.fsencode(path) for path in links}
    (tmp_path / "later").touch()
    git(tmp_path, "add", "-N", "later")  # a flag of version 3
    assert gitlinks((tmp_path / ".git/index").read_bytes(), size) == {os.fsencode(path) for path in links}


@pytest.mark.parametrize("version", [2, 4])
def test_an_index_with_tables_for_threads_is_read(tmp_path: Path, version: int) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "index.version", str(version))
    git(tmp_path, "config", "index.threads", "2")
    name = git(tmp_path, "hash-object", "-w", "/dev/null").strip()
    lines = "".join(f"100644 {name}\tf{number}\0" for number in range(25_000)) + f"160000 {name}\tlink\0"
    subprocess.run(
        ["git", "update-index", "-z", "--index-info"], cwd=tmp_path, env=ENV, check=True, input=lines.encode()
    )
    index = (tmp_path / ".git/index").read_bytes()
    assert b"IEOT" in index
    assert gitlinks(index, 20) == {b"link"}


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_index_hides_no_submodule(tmp_path: Path, seed: int) -> None:
    """Whatever git still reads of it, we read as well or refuse."""
    chance = random.Random(seed)
    random_index(chance, tmp_path, ["--object-format=sha1", f"index.version={chance.choice((2, 4))}"])
    file = tmp_path / ".git/index"
    index = bytearray(file.read_bytes())
    for _ in range(chance.randint(1, 3)):
        index[chance.randrange(len(index) - 20)] = chance.choice((0, 1, 4, 0x40, 0xA1, 0xE0, 0xEF, 0xFF))
    index[-20:] = bytes(20)  # no sum
    file.write_bytes(bytes(index))
    git_reads = subprocess.run(["git", "ls-files", "-sz"], cwd=tmp_path, env=ENV, capture_output=True, check=False)
    if git_reads.returncode == 0:
        listed = [line for line in git_reads.stdout.split(b"\0") if line.startswith(b"160")]
        try:
            found = gitlinks(bytes(index), 20)
        except (ValueError, IndexError):
            return
        assert {line.split(b"\t")[1] for line in listed} <= found


EVIL = "git init -q {path}; "
EVIL += "git -C {path} commit -q --allow-empty -m x; "
EVIL += "git -C {path} config core.fsmonitor 'touch {mark}; false'"

TEMPORARY = "GIT_INDEX_FILE=/tmp/i git read-tree HEAD; GIT_INDEX_FILE=/tmp/i git add {path}; "

WAYS = {
    "add": "git add {path}",
    "add with a slash": "git add -f {path}/",
    "update-index": "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),{path}",
    "index-info": 'printf "160644 %s\\t{path}\\n" $(git rev-parse HEAD) | git update-index --index-info',
    "commit": "git add {path}; git commit -qam evil",
    "checkout": "{temporary}"
    "git update-ref refs/heads/evil $(git commit-tree $(GIT_INDEX_FILE=/tmp/i git write-tree) -m x); "
    "git checkout -q evil",
    "reset": "{temporary}git read-tree $(GIT_INDEX_FILE=/tmp/i git write-tree)",
    "a copied index": "{temporary}"
    "cat /tmp/i > .git/index; cp /tmp/i .git/index.lock; mv .git/index.lock .git/index; "
    "cp /tmp/i .git/x.lock; mv -f .git/x.lock .git/index; rm -f .git/index; cp /tmp/i .git/index",
    "a split index": "git update-index --split-index; git add {path}",
    "version 4": "git update-index --index-version 4; git add {path}",
    "a writer that stays": '{temporary}python3 -c "'
    "import os; f = open('.git/w.lock', 'wb'); f.write(open('.git/index', 'rb').read()); f.flush(); "
    "os.rename('.git/w.lock', '.git/index'); f.seek(0); f.write(open('/tmp/i', 'rb').read()); f.flush()\"",
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(2))
async def test_git_enters_no_repository_that_a_process_has_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, seed: int
) -> None:
    need("bubblewrap", monkeypatch)
    chance = random.Random(f"{way}{seed}")
    mark = tmp_path / "ran"
    path = "/".join(chance.choices(("one", "two", "t.h-r_ee"), k=chance.randint(1, 4)))
    with world(tmp_path) as there:
        git(there.workspace, "init", "-q", "-b", "main")
        git(there.workspace, "add", ".")
        git(there.workspace, "commit", "-qm", "first")
        sandbox = there.sandbox()
        script = "\n".join(
            [
                NAMES,
                EVIL.format(path=path, mark=mark),
                (WAYS[way].replace("{temporary}", TEMPORARY)).format(path=path),
                "true",
            ]
        )
        done = await there.run(["bash", "-c", script], sandbox)
        sandbox.remove()
        assert there.harm(done) == []
        git(there.workspace, "status")
        git(there.workspace, "diff")
        assert not mark.exists()


@pytest.mark.parametrize("form", ["none", "no directory", "a directory of its own", "a file"])
async def test_git_enters_no_other_repository_in_place_of_a_submodule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    need("bubblewrap", monkeypatch)
    mark = tmp_path / "ran"
    with world(tmp_path) as there:
        ours, part = there.workspace, tmp_path / "part"
        part.mkdir()
        for directory in (part, ours):
            git(directory, "init", "-q", "-b", "main")
            git(directory, "commit", "-q", "--allow-empty", "-m", "first")
        if form == "a file":
            git(ours, "submodule", "add", "-q", str(part), "lib/part")
        else:
            git(ours, "clone", "-q", str(part), "lib/part")
            git(ours, "add", "lib/part")
            if form != "a directory of its own":
                subprocess.run(["rm", "-r", "lib/part/.git" if form == "none" else "lib"], cwd=ours, check=True)
        git(ours, "commit", "-qm", "second")
        sandbox = there.sandbox()
        setting = f"core.fsmonitor 'touch {mark}; false'"
        tries = [
            f"git -C lib/part config {setting}",
            "mv lib/part lib/other",
            "mv lib other",
            "rm -rf lib/part/.git lib/part",
            "mkdir -p lib/part",
            "git init -q lib/part",
            f"git -C lib/part config {setting}",
            f"git init -q evil; git -C evil config {setting}; cp -r evil/.git lib/part/; mv evil lib/part",
        ]
        done = await there.run(["bash", "-c", "\n".join([NAMES, *tries, "true"])], sandbox)
        sandbox.remove()
        assert there.harm(done) == []
        git(ours, "status")
        git(ours, "diff")
        assert not mark.exists()


async def test_work_in_a_submodule_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("bubblewrap", monkeypatch)
    with world(tmp_path) as there:
        ours, part = there.workspace, tmp_path / "part"
        part.mkdir()
        for directory in (part, ours):
            git(directory, "init", "-q", "-b", "main")
            git(directory, "commit", "-q", "--allow-empty", "-m", "first")
        git(ours, "submodule", "add", "-q", str(part), "lib/part")
        git(ours, "commit", "-qm", "second")
        sandbox = there.sandbox()
        script = (
            "cd lib/part && echo x > new && git add new && git commit -qm new && cd ../.. && git add lib/part && "
            "git commit -qm third && git status --short && git submodule status"
        )
        done = await there.run(["bash", "-c", NAMES + script], sandbox)
        sandbox.remove()
        assert there.harm(done) == []
        assert done.status == 0, done.stderr_tail
        assert (
            git(ours, "ls-tree", "HEAD", "lib/part").split()[2] == git(ours / "lib/part", "rev-parse", "HEAD").strip()
        )
