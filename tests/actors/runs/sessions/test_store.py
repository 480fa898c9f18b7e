"""Sessions on disk: their names, those of older programs, and that a file is there whole or not at all."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from pathlib import Path

import msgspec
import pytest
from support.messages import has_message, says
from support.session_store import SessionDirectory
from support.starter import forked_code

from callboard.actors.io.secret_redaction import handed_out
from callboard.actors.runs.sessions import files
from callboard.actors.runs.sessions.names import as_id
from callboard.actors.runs.sessions.store import SessionStore
from callboard.protocol.errors import Conflict, NotFound, NotKept, UsageError
from callboard.protocol.session import Session

UNNAMED = "20231201T123456-what-is-rust"


def test_what_was_saved_is_there_when_it_is_opened_again(session_dir: SessionDirectory) -> None:
    made = session_dir.store.create(initial=Session(messages=[{"role": "user", "content": "hi"}]))
    made.session.messages.append({"role": "assistant", "content": "hello"})
    session_dir.store.save(made)
    again = session_dir.again().open(made.id)
    assert [message["content"] for message in again.session.messages] == ["hi", "hello"]
    assert again.session.meta.owner == "local"
    assert as_id(made.id) == made.id


def test_an_alias_finds_the_session_that_was_made_under_it(session_dir: SessionDirectory) -> None:
    made = session_dir.store.create(alias="my-project")
    found = session_dir.again().open_or_create_by_alias("my-project")
    assert (found.id, found.alias) == (made.id, "my-project")
    assert (session_dir.home / "sessions" / "by-name" / "my-project").read_text().strip() == made.id
    assert (session_dir.home / "sessions" / "by-id" / made.id / "state.yaml").is_file()


def test_an_alias_that_is_taken_is_a_conflict(session_dir: SessionDirectory) -> None:
    session_dir.store.create(alias="x")
    other = session_dir.store.create()
    session_dir.legacy("my-project.yaml")
    with pytest.raises(Conflict, match=says("runs.sessions.store.SessionStore.create", alias="x")):
        session_dir.store.create(alias="x")
    with pytest.raises(Conflict, match=says("runs.sessions.store.SessionStore.create", alias="my-project")):
        session_dir.store.create(alias="my-project")
    with pytest.raises(Conflict, match=says("runs.sessions.store.SessionStore.rename", alias="x")):
        session_dir.store.rename(other.id, "x")


def test_case_104_lokis_session_is_copied_when_it_is_first_opened_and_its_file_stays(
    session_dir: SessionDirectory,
) -> None:
    legacy = session_dir.legacy("my-project.yaml")
    before = legacy.read_bytes()
    opened = session_dir.store.open_or_create_by_alias("my-project")
    home = session_dir.home / "sessions"
    assert (home / "by-id" / opened.id / "state.yaml").read_bytes() == before == legacy.read_bytes()
    assert (home / "by-name" / "my-project").read_text().strip() == opened.id
    assert opened.session.agent_variables["language"] == "Python"
    assert len(opened.session.compressed_messages) == 4
    assert session_dir.again().open_or_create_by_alias("my-project").id == opened.id
    assert len(list((home / "by-id").iterdir())) == 1
    with pytest.raises(Conflict):
        session_dir.store.create(alias="my-project")


def test_lokis_sessions_of_an_agent_and_those_that_nobody_named_are_found(session_dir: SessionDirectory) -> None:
    session_dir.legacy("my-project.yaml", agent="sisyphus")
    session_dir.legacy(f"_/{UNNAMED}.yaml")
    of_agent = session_dir.store.open_or_create_by_alias("my-project", agent="sisyphus")
    assert session_dir.store.path(of_agent.id, "sisyphus").is_relative_to(
        session_dir.home / "agents" / "sisyphus" / "sessions"
    )
    assert session_dir.store.find(of_agent.id) == (of_agent.id, "sisyphus")
    assert session_dir.store.resolve_alias("my-project") is None
    unnamed = session_dir.store.open_or_create_by_alias(f"_/{UNNAMED}")
    assert unnamed.alias == UNNAMED
    assert unnamed.session.messages[1]["content"] == "Iron oxide."
    assert [meta.is_autoname for meta in session_dir.store.list()] == [True]


def test_a_list_shows_lokis_sessions_without_copying_them_and_their_ids_open_them(
    session_dir: SessionDirectory,
) -> None:
    session_dir.legacy("my-project.yaml")
    session_dir.legacy(f"_/{UNNAMED}.yaml")
    new = session_dir.store.create(alias="new")
    listed = {meta.alias: meta for meta in session_dir.store.list()}
    assert {alias: meta.legacy for alias, meta in listed.items()} == {"my-project": True, UNNAMED: True, "new": False}
    assert not (session_dir.home / "sessions" / "by-name" / "my-project").exists()
    assert listed["new"].id == new.id
    opened = session_dir.again().open(listed["my-project"].id)
    assert opened.alias == "my-project"
    assert len(session_dir.store.list()) == 3


def test_the_list_is_of_all_agents_or_of_one_newest_first(session_dir: SessionDirectory) -> None:
    one, two = session_dir.store.create(alias="one"), session_dir.store.create("coder", alias="two")
    os.utime(session_dir.store.path(one.id), (1, 1))
    assert [(meta.alias, meta.agent) for meta in session_dir.store.list(everywhere=True)] == [
        ("two", "coder"),
        ("one", None),
    ]
    assert [meta.id for meta in session_dir.store.list("coder")] == [two.id]
    assert [meta.id for meta in session_dir.store.list()] == [one.id]


def test_an_agent_without_a_directory_keeps_its_sessions_where_they_hide_no_agent(
    session_dir: SessionDirectory,
) -> None:
    made = session_dir.store.create("explore", alias="x")
    assert not (session_dir.home / "agents" / "explore").exists()
    (session_dir.home / "agents" / "explore").mkdir(parents=True)  # it has one from now on
    assert session_dir.again().find("x", "explore") == (made.id, "explore")


def test_delete_removes_the_state_every_alias_and_lokis_file(session_dir: SessionDirectory) -> None:
    legacy = session_dir.legacy("my-project.yaml")
    opened = session_dir.store.open_or_create_by_alias("my-project")
    session_dir.store.delete(opened.id)
    assert not legacy.exists()
    assert session_dir.store.list() == []
    assert not (session_dir.home / "sessions" / "by-id" / opened.id).exists()
    assert not (session_dir.home / "sessions" / "by-name" / "my-project").exists()
    with pytest.raises(NotFound):
        session_dir.store.open(opened.id)


def test_rename_changes_the_alias_and_leaves_the_state_as_it_is(session_dir: SessionDirectory) -> None:
    made = session_dir.store.create(alias="old")
    path = session_dir.store.path(made.id)
    before = (path.stat().st_mtime_ns, path.stat().st_ino)
    session_dir.store.rename(made.id, "new")
    assert session_dir.store.resolve_alias("old") is None
    assert session_dir.store.resolve_alias("new") == made.id
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before
    session_dir.store.rename(made.id, "new")


def test_a_session_that_was_deleted_meanwhile_is_not_written_again(session_dir: SessionDirectory) -> None:
    made = session_dir.store.create()
    session_dir.again().delete(made.id)
    with pytest.raises(NotFound, match=says("runs.sessions.store.SessionStore.save")):
        session_dir.store.save(made)
    assert not session_dir.store.path(made.id).parent.exists()


def test_what_somebody_else_has_written_is_never_overwritten(session_dir: SessionDirectory) -> None:
    made = session_dir.store.create()
    other = session_dir.again().open(made.id)
    other.session.title = "theirs"
    session_dir.again().save(other)
    with pytest.raises(Conflict, match=says("runs.sessions.store.SessionStore.save.2")):
        session_dir.store.save(made)
    assert session_dir.store.fresh(made).session.title == "theirs"


def test_an_alias_file_with_garbage_counts_as_missing_and_is_told(session_dir: SessionDirectory) -> None:
    made = session_dir.store.create(alias="x")
    pointer = session_dir.home / "sessions" / "by-name" / "x"
    pointer.write_bytes(b"\xff\x00 not an id")
    assert session_dir.store.resolve_alias("x") is None
    assert has_message(session_dir.warnings[-1], "runs.sessions.store.pointed.2")
    fresh = session_dir.store.open_or_create_by_alias("x")
    assert fresh.id != made.id
    pointer.write_text("0b6f2d4c-8e11-4c0c-9d7e-7d2b5e0e9a35\n")
    assert session_dir.store.resolve_alias("x") is None
    assert has_message(session_dir.warnings[-1], "runs.sessions.store.pointed")


def test_a_session_that_can_not_be_read_spoils_no_list(session_dir: SessionDirectory) -> None:
    broken, fine = session_dir.store.create(), session_dir.store.create(alias="fine")
    session_dir.store.path(broken.id).write_text("messages: [")
    assert [meta.id for meta in session_dir.store.list()] == [fine.id]
    assert has_message(session_dir.warnings[-1], "runs.sessions.store._readable_session")


def test_files_are_for_their_owner_alone(session_dir: SessionDirectory) -> None:
    made = session_dir.store.create("coder", alias="x")
    path = session_dir.store.path(made.id, "coder")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert all(stat.S_IMODE(folder.stat().st_mode) == 0o700 for folder in list(path.parents)[:4])


@pytest.mark.parametrize(
    "name",
    [
        "", " ", "..", ".", "../x", "a/b", "/etc/passwd", "a\\b", "a\0b", ".hidden", "a\nb", " x", "x ", "x" * 121,
        "\ud800", "temp", "state.tmp", "0b6f2d4c-8e11-4c0c-9d7e-7d2b5e0e9a35", "_/../../x", "a\u202eb",
    ],
)  # fmt: skip
def test_names_that_play_tricks_with_paths_are_refused(session_dir: SessionDirectory, name: str) -> None:
    for refused in (
        lambda: session_dir.store.create(alias=name),
        lambda: session_dir.store.open_or_create_by_alias(name),
        lambda: session_dir.store.resolve_alias(name),
    ):
        with pytest.raises(UsageError, match=says("runs.sessions.names.checked_alias.3")):
            refused()
    if name != "temp" and as_id(name) is None:
        with pytest.raises(UsageError, match=says("runs.sessions.names.checked_agent")):
            session_dir.store.create(name)
    assert not session_dir.home.exists()


def test_an_id_in_another_spelling_is_the_same_and_a_trick_is_none(session_dir: SessionDirectory) -> None:
    made = session_dir.store.create()
    assert session_dir.store.open(made.id.upper()).id == made.id
    for wrong in (f"../by-id/{made.id}", made.id[:-1], made.id.replace("-", "")):
        with pytest.raises(UsageError):
            session_dir.store.open(wrong)


def test_a_write_that_fails_leaves_the_old_state_and_no_rubbish(
    session_dir: SessionDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = session_dir.store.create(initial=Session(title="old"))

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    made.session.title = "new"
    with pytest.raises(
        NotKept, match=says("runs.sessions.files.disk_errors_named.2", reason="No space left on device")
    ):
        session_dir.store.save(made)
    monkeypatch.undo()
    assert session_dir.again().open(made.id).session.title == "old"
    assert [path.name for path in session_dir.store.path(made.id).parent.iterdir()] == ["state.yaml"]


DIES = """
import os, signal, sys
from pathlib import Path
from callboard.actors.runs.sessions.store import SessionStore

store = SessionStore(Path(sys.argv[1]))
stored = store.open(sys.argv[2])
stored.session.title = "new"
Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
store.save(stored)
"""


def test_case_103_a_process_killed_between_writing_and_renaming_leaves_the_old_state(
    session_dir: SessionDirectory,
) -> None:
    made = session_dir.store.create(initial=Session(title="old"))
    died = subprocess.run([*forked_code(DIES), session_dir.home, made.id], timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL
    folder = session_dir.store.path(made.id).parent
    (left,) = folder.glob("*.part")
    assert "new" in left.read_text()
    assert session_dir.again().open(made.id).session.title == "old"
    assert left.exists()  # it might be somebody's who is just writing
    lock = session_dir.again().try_hold(made.id)
    assert lock is not None
    lock.release()
    assert list(folder.glob("*.part")) == []


HOLDS = """
import sys
from pathlib import Path
from callboard.actors.runs.sessions.store import SessionStore

lock = SessionStore(Path(sys.argv[1])).try_hold(sys.argv[2])
print("held" if lock else "refused", flush=True)
sys.stdin.read()
"""


def test_the_lock_keeps_another_process_out_until_its_holder_ends_however(session_dir: SessionDirectory) -> None:
    made = session_dir.store.create(alias="x")
    command = [*forked_code(HOLDS), str(session_dir.home), made.id]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            assert session_dir.store.try_hold(made.id) is None
            assert f"'x' is in use by process {holder.pid}" in str(session_dir.store.in_use(made))
        finally:
            holder.kill()
    lock = session_dir.store.try_hold(made.id)
    assert lock is not None
    assert session_dir.store.try_hold(made.id) is None
    lock.release()


def test_a_lock_on_a_session_that_is_deleted_is_no_lock(session_dir: SessionDirectory) -> None:
    made = session_dir.store.create()
    lock = session_dir.store.try_hold(made.id)
    assert lock is not None
    session_dir.store.delete(made.id)
    with pytest.raises(NotFound):
        session_dir.store.try_hold(made.id)
    lock.release()


MIGRATES = """
import sys
from pathlib import Path
from callboard.actors.runs.sessions.store import SessionStore

print(SessionStore(Path(sys.argv[1])).open_or_create_by_alias(sys.argv[2]).id)
"""


def test_processes_that_open_the_same_alias_at_once_get_one_session(session_dir: SessionDirectory) -> None:
    session_dir.legacy("my-project.yaml")
    for alias in ("my-project", "brand-new"):
        command = [*forked_code(MIGRATES), str(session_dir.home), alias]
        both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
        ids = {process.communicate(timeout=60)[0].strip() for process in both}
        assert len(ids) == 1
        assert as_id(ids.pop()) is not None
    assert len(list((session_dir.home / "sessions" / "by-id").iterdir())) == 2


def test_who_looks_for_a_session_that_is_not_there_is_told_which_are(session_dir: SessionDirectory) -> None:
    session_dir.store.create(alias="bridges")
    with pytest.raises(NotFound, match=says("protocol.problems.suggestion", name="bridges")):
        session_dir.store.find("bridge")
    with pytest.raises(NotFound):
        session_dir.store.find("0b6f2d4c-8e11-4c0c-9d7e-7d2b5e0e9a35")


def test_a_session_is_a_struct_that_can_be_shown(session_dir: SessionDirectory) -> None:
    made = session_dir.store.create(alias="x")
    assert msgspec.to_builtins(session_dir.store.meta(made))["alias"] == "x"


def test_the_store_needs_no_directory_to_be_empty(tmp_path: Path) -> None:
    assert SessionStore(tmp_path / "nowhere").list(everywhere=True) == []


def test_a_file_is_without_what_the_vault_has_handed_out_and_without_thoughts_that_held_some(
    session_dir: SessionDirectory,
) -> None:
    """Whoever goes on in this process has the words as they were; a signed thought can't be sent again changed."""
    secret = "wk-a-secret-of-the-vault"
    handed_out(secret)
    thoughts = [{"form": "f", "data": f"about {secret}"}, {"form": "f", "data": "about plums"}]
    said = [{"role": "user", "content": f"it is {secret}"}]
    said += [{"role": "assistant", "content": "ok", "thought": thought} for thought in thoughts]
    called = {"tool_results": [], "text": "", "sequence": False, "thought": thoughts[0]}
    said.append({"role": "tool", "content": called})
    made = session_dir.store.create(initial=Session(messages=said))
    again = session_dir.again().open(made.id).session.messages
    assert secret not in session_dir.store.path(made.id, None).read_text()
    assert [each["content"] for each in again[:3]] == ["it is [redacted]", "ok", "ok"]
    assert [each.get("thought") for each in again] == [None, None, thoughts[1], None]
    assert "thought" not in again[3]["content"]
    assert made.session.messages == said
