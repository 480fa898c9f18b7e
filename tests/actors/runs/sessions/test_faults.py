"""What can go wrong around sessions' files: death at any moment, a disk that refuses, files of anybody's making."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from support.cpu_time import slowness
from support.messages import has_message, says
from support.session_store import SessionDirectory
from support.starter import forked_code

from callboard.actors.runs.sessions.store import SessionStore
from callboard.protocol.errors import Conflict, InvalidFile, NotFound, NotKept, UsageError
from callboard.protocol.session import MOST_BYTES, Session

UNNAMED = "20231201T123456-what-is-rust"

DIES = """
import os, shutil, signal, sys
from pathlib import Path
from callboard.actors.runs.sessions.store import SessionStore

base, id, step = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
FILES = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate", "shutil.rmtree"}

def save(store):
    stored = store.open(id)
    stored.session.title = "new " * 1000
    store.save(stored)

DEEDS = {
    "save": save,
    "create": lambda store: store.create(alias="made"),
    "rename": lambda store: store.rename(id, "other"),
    "delete": lambda store: store.delete(id),
    "migrate": lambda store: store.open_or_create_by_alias("my-project"),
    "delete-old": lambda store: store.delete(*store.find("my-project")),
}

def play(home, deed, at):
    store, seen = SessionStore(home), 0
    def hook(event, args):
        nonlocal seen
        if event in FILES and str(args[0]).startswith(str(home)):
            seen += 1
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    deed(store)

for name, deed in DEEDS.items():
    for at in range(1, 200, step):
        home = base / f"{name}-{at}"
        shutil.copytree(base / "start", home)
        child = os.fork()
        if child == 0:
            play(home, deed, at)
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            break
    print(name, at, flush=True)
"""


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.soak)])
def test_whoever_is_killed_at_whatever_moment_leaves_the_old_state_or_the_new_one(tmp_path: Path, step: int) -> None:
    start = SessionDirectory(tmp_path / "start")
    made = start.store.create(alias="x", initial=Session(title="old"))
    start.legacy("my-project.yaml")
    command = [*forked_code(DIES), str(tmp_path), made.id, str(step)]
    done = subprocess.run(command, timeout=300, check=True, stdout=subprocess.PIPE, text=True)
    moments = {name: int(at) for name, at in (line.split() for line in done.stdout.splitlines())}
    assert min(moments.values()) > 5
    for name, last in moments.items():
        for at in range(1, last + 1, step):
            _check(SessionDirectory(tmp_path / f"{name}-{at}"), name, made.id, finished=at == last)


def _check(session_dir: SessionDirectory, deed: str, id: str, *, finished: bool) -> None:
    store, home = session_dir.store, session_dir.home / "sessions"
    aliases = {meta.alias for meta in store.list()}
    assert list(home.glob("by-id/*/state.yaml")) == [
        folder / "state.yaml" for folder in (home / "by-id").iterdir()
    ]  # the list has cleared away what was never finished
    legacy = (home / "my-project.yaml").exists()
    if deed == "save":
        assert (store.open(id).session.title or "").strip() in (("new " * 1000).strip(), "old")[: 1 if finished else 2]
    elif deed == "create":
        assert store.open_or_create_by_alias("made").alias == "made"
        assert finished <= ("made" in aliases)
    elif deed == "rename":
        assert {"x", "other"} & aliases
        assert store.rename(id, "third").alias == "third"
        assert {path.name for path in (home / "by-name").iterdir()} == {"third"}
    elif deed == "delete":
        assert not (finished and "x" in aliases)
        with contextlib.suppress(NotFound):
            store.delete(id)
        with pytest.raises(NotFound):
            store.open(id)
    elif deed == "migrate":
        opened = store.open_or_create_by_alias("my-project")
        assert legacy
        assert len(opened.session.compressed_messages) == 4
        assert len([meta for meta in store.list() if meta.alias == "my-project"]) == 1
    else:
        assert not (finished and (legacy or "my-project" in aliases))
    lock = store.try_hold(id) if (home / "by-id" / id).exists() else None
    if lock is not None:
        lock.release()
        assert not list((home / "by-id" / id).glob("*.part"))


FULL = """
import os, resource, sys
from pathlib import Path
from callboard.actors.runs.sessions.store import SessionStore
from callboard.protocol.errors import NotKept

store, id = SessionStore(Path(sys.argv[1])), sys.argv[2]
stored = store.open(id)

def refused(limit, *deeds):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    for deed in deeds:
        try:
            deed()
        except NotKept as error:
            os.write(1, f"{error}\\n".encode())  # what it is good for: a pipe has no size

with store.try_hold(id):
    stored.session.title = "new" * 5000
    refused(4000, lambda: store.save(stored))
with store.try_hold(id):
    refused(0, lambda: store.save(stored), lambda: store.create(alias="y"), lambda: store.rename(id, "z"))
"""


def test_a_full_disk_is_told_and_leaves_the_old_state_and_no_lock(session_dir: SessionDirectory) -> None:
    made = session_dir.store.create(alias="x", initial=Session(title="old"))
    done = subprocess.run(
        [*forked_code(FULL), session_dir.home, made.id], timeout=60, check=True, stdout=subprocess.PIPE, text=True
    )
    told = done.stdout.splitlines()
    assert len(told) == 4, told
    assert all(line.startswith("sessions can't be saved: /") and line.endswith("File too large") for line in told)
    assert [(meta.alias, meta.title) for meta in session_dir.store.list()] == [("x", "old")]
    assert sorted(path.name for path in session_dir.store.path(made.id).parent.iterdir()) == ["lock", "state.yaml"]
    assert [path.name for path in session_dir.store.path(made.id).parent.parent.iterdir()] == [made.id]
    lock = session_dir.store.try_hold(made.id)
    assert lock is not None
    lock.release()


READ_ONLY = """
import json, os, sys
from pathlib import Path
from callboard.actors.runs.sessions.store import SessionStore
from callboard.protocol.errors import NotKept
import callboard.actors.runs.sessions.session_locks, encodings.idna

os.chdir(sys.argv[1])
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
store, told = SessionStore(Path(".")), {}
told["list"] = [meta.alias for meta in store.list()]
told["title"] = store.open(sys.argv[2]).session.title
stored = store.open(sys.argv[2])
for name, deed in {
    "hold": lambda: store.try_hold(stored.id),
    "save": lambda: store.save(stored),
    "create": lambda: store.create(alias="y"),
    "rename": lambda: store.rename(stored.id, "z"),
    "delete": lambda: store.delete(stored.id),
    "begin": lambda: store.create("coder"),
}.items():
    try:
        deed()
    except NotKept as error:
        told[name] = str(error)
print(json.dumps(told))
"""


def test_a_directory_that_may_only_be_read_is_read_and_changes_are_refused_by_its_name(
    session_dir: SessionDirectory,
) -> None:
    made = session_dir.store.create(alias="x", initial=Session(title="old"))
    folders = [session_dir.home, *(path for path in session_dir.home.rglob("*") if path.is_dir())]
    for path in session_dir.home.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    session_dir.home.chmod(0o555)
    try:
        done = subprocess.run(
            [*forked_code(READ_ONLY), session_dir.home, made.id], timeout=60, check=True, stdout=subprocess.PIPE
        )
    finally:
        for folder in folders:
            folder.chmod(0o700)
    told = json.loads(done.stdout)
    assert (told.pop("list"), told.pop("title")) == (["x"], "old")
    assert set(told) == {"hold", "save", "create", "rename", "delete", "begin"}
    assert all(
        has_message(error, "runs.sessions.files.disk_errors_named.2") and "denied" in error for error in told.values()
    ), told


def test_a_configuration_directory_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = SessionStore(tmp_path / "file")
    assert store.list(everywhere=True) == []
    with pytest.raises(NotKept, match="file"):
        store.create()


APPENDS = """
import sys, time
from pathlib import Path
from callboard.actors.runs.sessions.store import SessionStore

store, id = SessionStore(Path(sys.argv[1])), sys.argv[2]
sys.stdin.read()
for number in range(15):
    while (lock := store.try_hold(id)) is None:
        time.sleep(0.001)
    with lock:
        stored = store.open(id)
        stored.session.messages.append({"role": "user", "content": f"{sys.argv[3]}-{number}"})
        store.save(stored)
"""


def test_processes_that_write_at_once_lose_nothing(session_dir: SessionDirectory) -> None:
    made = session_dir.store.create()
    command = [*forked_code(APPENDS), str(session_dir.home), made.id]
    writers = [subprocess.Popen([*command, name], stdin=subprocess.PIPE) for name in ("a", "b", "c")]
    try:
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.close()
        assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    said = [message["content"] for message in session_dir.store.open(made.id).session.messages]
    assert sorted(said) == sorted(f"{name}-{number}" for name in "abc" for number in range(15))


def test_what_a_living_writer_has_half_done_is_left_alone_whatever_the_clock_says(
    session_dir: SessionDirectory,
) -> None:
    made = session_dir.store.create(alias="x")
    folder = session_dir.store.path(made.id).parent
    parts = [folder / "state.yaml.1-1.part", session_dir.home / "sessions" / "by-name" / "y.1-1.part"]
    for part in parts:
        part.write_text("half")
        os.utime(part, (1, 1))
    os.utime(folder / "state.yaml", (4e9, 4e9))  # the clock was ahead, or will be
    store = session_dir.again()
    stored = store.open(made.id)
    assert [meta.alias for meta in store.list()] == ["x"]
    assert all(part.exists() for part in parts)
    lock = store.try_hold(made.id)  # now nobody else writes
    assert lock is not None
    with lock:
        stored.session.title = "new"
        store.save(stored)
    assert store.fresh(stored).session.title == "new"
    store.rename(made.id, "z")
    assert not any(part.exists() for part in parts)


@pytest.mark.parametrize(
    "text",
    [b"\xff\xfe", b"messages: [", b"- a", b"messages: {a: b}", b"_meta: 5", b"a: " + b"[" * 50_000, b"temperature: x"],
)
def test_a_state_file_of_any_kind_is_refused_by_name_and_can_be_deleted(
    session_dir: SessionDirectory, text: bytes
) -> None:
    broken = session_dir.store.create(alias="broken")
    path = session_dir.store.path(broken.id)
    path.write_bytes(text)
    with pytest.raises(InvalidFile, match=broken.id):
        session_dir.store.open(broken.id)
    assert session_dir.store.list() == []
    assert broken.id in session_dir.warnings[-1]
    assert session_dir.store.find("broken") == (broken.id, None)
    session_dir.store.delete(broken.id)
    assert not path.parent.exists()
    assert session_dir.store.resolve_alias("broken") is None


def test_a_file_of_any_length_is_refused_without_being_read(session_dir: SessionDirectory) -> None:
    made = session_dir.store.create(alias="x")
    os.truncate(session_dir.store.path(made.id), MOST_BYTES + 1)
    (session_dir.home / "sessions" / "by-name" / "long").touch()
    os.truncate(session_dir.home / "sessions" / "by-name" / "long", 1 << 40)
    with pytest.raises(InvalidFile, match=says("runs.sessions.files.text_of")):
        session_dir.store.open(made.id)
    assert session_dir.store.resolve_alias("long") is None


@pytest.mark.parametrize("text", ["", "\n", "\ufeff", "\0\0\0"])
def test_an_empty_file_is_no_session(session_dir: SessionDirectory, text: str) -> None:
    """A new conversation in its place would lose the other without a word."""
    stored = session_dir.store.create(alias="torn")
    session_dir.store.path(stored.id).write_text(text)
    with pytest.raises(InvalidFile, match="torn"):
        session_dir.store.open_or_create_by_alias("torn")


def test_odd_files_among_lokis_sessions_harm_nobody(session_dir: SessionDirectory) -> None:
    home = session_dir.legacy("my-project.yaml").parent
    session_dir.legacy(f"_/{UNNAMED}.yaml")
    text = (home / "my-project.yaml").read_text()
    (home / "_" / "plain.yaml").write_text(text)
    (home / "_" / "my-project.yaml").write_text("messages: []")
    (home / "folder.yaml").mkdir()
    (home / "nowhere.yaml").symlink_to(home / "gone")
    for name in (".hidden.yaml", "old.yml", "notes.txt", "tricky\n.yaml", "temp.yaml"):
        (home / name).write_text(text)
    (home / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    (home / "empty.yaml").write_text("")
    os.mkfifo(home / "pipe.yaml")
    listed = {meta.alias: meta.id for meta in session_dir.store.list()}
    assert set(listed) == {"my-project", "plain", "empty", UNNAMED}
    with pytest.raises(InvalidFile, match="empty"):
        session_dir.store.open(listed.pop("empty"))
    for alias, id in listed.items():
        assert session_dir.store.open(id).alias == alias
    assert len(session_dir.store.open(listed["my-project"]).session.messages) > 0
    with pytest.raises(InvalidFile, match="binary"):
        session_dir.store.open_or_create_by_alias("binary")


def test_what_lokis_session_was_called_is_free_once_it_is_called_otherwise(session_dir: SessionDirectory) -> None:
    legacy = session_dir.legacy("my-project.yaml")
    opened = session_dir.store.open_or_create_by_alias("my-project")
    session_dir.store.rename(opened.id, "other")
    assert session_dir.store.resolve_alias("my-project") is None
    fresh = session_dir.store.open_or_create_by_alias("my-project")
    assert (fresh.id != opened.id, fresh.session.messages) == (True, [])
    assert legacy.exists()
    assert {meta.alias for meta in session_dir.store.list()} == {"other", "my-project"}
    with pytest.raises(Conflict, match=says("runs.sessions.store.SessionStore.move")):
        session_dir.store.move(opened.id, None, "coder")
    session_dir.store.delete(opened.id)
    assert not legacy.exists()
    assert [meta.id for meta in session_dir.store.list()] == [fresh.id]


@pytest.mark.parametrize(
    "name", ["x" * 120, "é" * 60, "日本語のセッション", "a b", "-", "--help", "naïve", "nai\u0308ve", "lock", "by-id"]
)
def test_a_name_of_any_language_is_one(session_dir: SessionDirectory, name: str) -> None:
    made = session_dir.store.create(alias=name)
    assert session_dir.again().open_or_create_by_alias(name).id == made.id
    assert [meta.alias for meta in session_dir.store.list()] == [name]
    session_dir.store.rename(made.id, name[::-1] + "2" if len(name) < 60 else "short")
    with pytest.raises(UsageError):
        session_dir.store.create(alias=name + "x" * 120)


def test_a_thousand_sessions_are_listed_soon_and_one_is_opened_without_the_others(
    session_dir: SessionDirectory,
) -> None:
    made = session_dir.store.create(
        alias="s0", initial=Session(messages=[{"role": "user", "content": "word " * 4000}] * 5)
    )
    home = session_dir.home / "sessions"
    text = (home / "by-id" / made.id / "state.yaml").read_bytes()
    for number in range(1, 1000):
        id = f"{number:08x}-0000-4000-8000-000000000000"
        (home / "by-id" / id).mkdir()
        (home / "by-id" / id / "state.yaml").write_bytes(text)
        (home / "by-name" / f"s{number}").write_text(f"{id}\n")
    began = time.process_time()
    listed = session_dir.store.list(everywhere=True)
    assert time.process_time() - began < 3 * slowness()  # some 0.1 s
    assert {meta.alias for meta in listed} == {f"s{number}" for number in range(1000)}
    began = time.process_time()
    stored = session_dir.store.open_or_create_by_alias("s500")
    for _ in range(20):
        stored = session_dir.store.fresh(stored)
    assert time.process_time() - began < 0.5 * slowness()  # some 0.01 s
