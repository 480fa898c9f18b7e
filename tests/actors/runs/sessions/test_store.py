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
from support.session_store import Shelf
from support.starter import forked_code

from callboard.actors.io.secret_redaction import handed_out
from callboard.actors.runs.sessions import files
from callboard.actors.runs.sessions.names import as_id
from callboard.actors.runs.sessions.store import SessionStore
from callboard.protocol.errors import Conflict, NotFound, NotKept, UsageError
from callboard.protocol.session import Session

UNNAMED = "20231201T123456-what-is-rust"


def test_what_was_saved_is_there_when_it_is_opened_again(shelf: Shelf) -> None:
    made = shelf.store.create(initial=Session(messages=[{"role": "user", "content": "hi"}]))
    made.session.messages.append({"role": "assistant", "content": "hello"})
    shelf.store.save(made)
    again = shelf.again().open(made.id)
    assert [message["content"] for message in again.session.messages] == ["hi", "hello"]
    assert again.session.meta.owner == "local"
    assert as_id(made.id) == made.id


def test_an_alias_finds_the_session_that_was_made_under_it(shelf: Shelf) -> None:
    made = shelf.store.create(alias="my-project")
    found = shelf.again().open_or_create_by_alias("my-project")
    assert (found.id, found.alias) == (made.id, "my-project")
    assert (shelf.home / "sessions" / "by-name" / "my-project").read_text().strip() == made.id
    assert (shelf.home / "sessions" / "by-id" / made.id / "state.yaml").is_file()


def test_an_alias_that_is_taken_is_a_conflict(shelf: Shelf) -> None:
    shelf.store.create(alias="x")
    other = shelf.store.create()
    shelf.legacy("my-project.yaml")
    with pytest.raises(Conflict, match=says("runs.sessions.store.SessionStore.create", alias="x")):
        shelf.store.create(alias="x")
    with pytest.raises(Conflict, match=says("runs.sessions.store.SessionStore.create", alias="my-project")):
        shelf.store.create(alias="my-project")
    with pytest.raises(Conflict, match=says("runs.sessions.store.SessionStore.rename", alias="x")):
        shelf.store.rename(other.id, "x")


def test_case_104_lokis_session_is_copied_when_it_is_first_opened_and_its_file_stays(shelf: Shelf) -> None:
    legacy = shelf.legacy("my-project.yaml")
    before = legacy.read_bytes()
    opened = shelf.store.open_or_create_by_alias("my-project")
    home = shelf.home / "sessions"
    assert (home / "by-id" / opened.id / "state.yaml").read_bytes() == before == legacy.read_bytes()
    assert (home / "by-name" / "my-project").read_text().strip() == opened.id
    assert opened.session.agent_variables["language"] == "Python"
    assert len(opened.session.compressed_messages) == 4
    assert shelf.again().open_or_create_by_alias("my-project").id == opened.id
    assert len(list((home / "by-id").iterdir())) == 1
    with pytest.raises(Conflict):
        shelf.store.create(alias="my-project")


def test_lokis_sessions_of_an_agent_and_those_that_nobody_named_are_found(shelf: Shelf) -> None:
    shelf.legacy("my-project.yaml", agent="sisyphus")
    shelf.legacy(f"_/{UNNAMED}.yaml")
    of_agent = shelf.store.open_or_create_by_alias("my-project", agent="sisyphus")
    assert shelf.store.path(of_agent.id, "sisyphus").is_relative_to(shelf.home / "agents" / "sisyphus" / "sessions")
    assert shelf.store.find(of_agent.id) == (of_agent.id, "sisyphus")
    assert shelf.store.resolve_alias("my-project") is None
    unnamed = shelf.store.open_or_create_by_alias(f"_/{UNNAMED}")
    assert unnamed.alias == UNNAMED
    assert unnamed.session.messages[1]["content"] == "Iron oxide."
    assert [meta.is_autoname for meta in shelf.store.list()] == [True]


def test_a_list_shows_lokis_sessions_without_copying_them_and_their_ids_open_them(shelf: Shelf) -> None:
    shelf.legacy("my-project.yaml")
    shelf.legacy(f"_/{UNNAMED}.yaml")
    new = shelf.store.create(alias="new")
    listed = {meta.alias: meta for meta in shelf.store.list()}
    assert {alias: meta.legacy for alias, meta in listed.items()} == {"my-project": True, UNNAMED: True, "new": False}
    assert not (shelf.home / "sessions" / "by-name" / "my-project").exists()
    assert listed["new"].id == new.id
    opened = shelf.again().open(listed["my-project"].id)
    assert opened.alias == "my-project"
    assert len(shelf.store.list()) == 3


def test_the_list_is_of_all_agents_or_of_one_newest_first(shelf: Shelf) -> None:
    one, two = shelf.store.create(alias="one"), shelf.store.create("coder", alias="two")
    os.utime(shelf.store.path(one.id), (1, 1))
    assert [(meta.alias, meta.agent) for meta in shelf.store.list(everywhere=True)] == [("two", "coder"), ("one", None)]
    assert [meta.id for meta in shelf.store.list("coder")] == [two.id]
    assert [meta.id for meta in shelf.store.list()] == [one.id]


def test_an_agent_without_a_directory_keeps_its_sessions_where_they_hide_no_agent(shelf: Shelf) -> None:
    made = shelf.store.create("explore", alias="x")
    assert not (shelf.home / "agents" / "explore").exists()
    (shelf.home / "agents" / "explore").mkdir(parents=True)  # it has one from now on
    assert shelf.again().find("x", "explore") == (made.id, "explore")


def test_delete_removes_the_state_every_alias_and_lokis_file(shelf: Shelf) -> None:
    legacy = shelf.legacy("my-project.yaml")
    opened = shelf.store.open_or_create_by_alias("my-project")
    shelf.store.delete(opened.id)
    assert not legacy.exists()
    assert shelf.store.list() == []
    assert not (shelf.home / "sessions" / "by-id" / opened.id).exists()
    assert not (shelf.home / "sessions" / "by-name" / "my-project").exists()
    with pytest.raises(NotFound):
        shelf.store.open(opened.id)


def test_rename_changes_the_alias_and_leaves_the_state_as_it_is(shelf: Shelf) -> None:
    made = shelf.store.create(alias="old")
    path = shelf.store.path(made.id)
    before = (path.stat().st_mtime_ns, path.stat().st_ino)
    shelf.store.rename(made.id, "new")
    assert shelf.store.resolve_alias("old") is None
    assert shelf.store.resolve_alias("new") == made.id
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before
    shelf.store.rename(made.id, "new")


def test_a_session_that_was_deleted_meanwhile_is_not_written_again(shelf: Shelf) -> None:
    made = shelf.store.create()
    shelf.again().delete(made.id)
    with pytest.raises(NotFound, match=says("runs.sessions.store.SessionStore.save")):
        shelf.store.save(made)
    assert not shelf.store.path(made.id).parent.exists()


def test_what_somebody_else_has_written_is_never_overwritten(shelf: Shelf) -> None:
    made = shelf.store.create()
    other = shelf.again().open(made.id)
    other.session.title = "theirs"
    shelf.again().save(other)
    with pytest.raises(Conflict, match=says("runs.sessions.store.SessionStore.save.2")):
        shelf.store.save(made)
    assert shelf.store.fresh(made).session.title == "theirs"


def test_an_alias_file_with_garbage_counts_as_missing_and_is_told(shelf: Shelf) -> None:
    made = shelf.store.create(alias="x")
    pointer = shelf.home / "sessions" / "by-name" / "x"
    pointer.write_bytes(b"\xff\x00 not an id")
    assert shelf.store.resolve_alias("x") is None
    assert has_message(shelf.warnings[-1], "runs.sessions.store.pointed.2")
    fresh = shelf.store.open_or_create_by_alias("x")
    assert fresh.id != made.id
    pointer.write_text("0b6f2d4c-8e11-4c0c-9d7e-7d2b5e0e9a35\n")
    assert shelf.store.resolve_alias("x") is None
    assert has_message(shelf.warnings[-1], "runs.sessions.store.pointed")


def test_a_session_that_can_not_be_read_spoils_no_list(shelf: Shelf) -> None:
    broken, fine = shelf.store.create(), shelf.store.create(alias="fine")
    shelf.store.path(broken.id).write_text("messages: [")
    assert [meta.id for meta in shelf.store.list()] == [fine.id]
    assert has_message(shelf.warnings[-1], "runs.sessions.store._readable_session")


def test_files_are_for_their_owner_alone(shelf: Shelf) -> None:
    made = shelf.store.create("coder", alias="x")
    path = shelf.store.path(made.id, "coder")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert all(stat.S_IMODE(folder.stat().st_mode) == 0o700 for folder in list(path.parents)[:4])


@pytest.mark.parametrize(
    "name",
    [
        "", " ", "..", ".", "../x", "a/b", "/etc/passwd", "a\\b", "a\0b", ".hidden", "a\nb", " x", "x ", "x" * 121,
        "\ud800", "temp", "state.tmp", "0b6f2d4c-8e11-4c0c-9d7e-7d2b5e0e9a35", "_/../../x", "a\u202eb",
    ],
)  # fmt: skip
def test_names_that_play_tricks_with_paths_are_refused(shelf: Shelf, name: str) -> None:
    for refused in (
        lambda: shelf.store.create(alias=name),
        lambda: shelf.store.open_or_create_by_alias(name),
        lambda: shelf.store.resolve_alias(name),
    ):
        with pytest.raises(UsageError, match=says("runs.sessions.names.checked_alias.3")):
            refused()
    if name != "temp" and as_id(name) is None:
        with pytest.raises(UsageError, match=says("runs.sessions.names.checked_agent")):
            shelf.store.create(name)
    assert not shelf.home.exists()


def test_an_id_in_another_spelling_is_the_same_and_a_trick_is_none(shelf: Shelf) -> None:
    made = shelf.store.create()
    assert shelf.store.open(made.id.upper()).id == made.id
    for wrong in (f"../by-id/{made.id}", made.id[:-1], made.id.replace("-", "")):
        with pytest.raises(UsageError):
            shelf.store.open(wrong)


def test_a_write_that_fails_leaves_the_old_state_and_no_rubbish(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    made = shelf.store.create(initial=Session(title="old"))

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    made.session.title = "new"
    with pytest.raises(
        NotKept, match=says("runs.sessions.files.disk_errors_named.2", reason="No space left on device")
    ):
        shelf.store.save(made)
    monkeypatch.undo()
    assert shelf.again().open(made.id).session.title == "old"
    assert [path.name for path in shelf.store.path(made.id).parent.iterdir()] == ["state.yaml"]


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


def test_case_103_a_process_killed_between_writing_and_renaming_leaves_the_old_state(shelf: Shelf) -> None:
    made = shelf.store.create(initial=Session(title="old"))
    died = subprocess.run([*forked_code(DIES), shelf.home, made.id], timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL
    folder = shelf.store.path(made.id).parent
    (left,) = folder.glob("*.part")
    assert "new" in left.read_text()
    assert shelf.again().open(made.id).session.title == "old"
    assert left.exists()  # it might be somebody's who is just writing
    lock = shelf.again().try_hold(made.id)
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


def test_the_lock_keeps_another_process_out_until_its_holder_ends_however(shelf: Shelf) -> None:
    made = shelf.store.create(alias="x")
    command = [*forked_code(HOLDS), str(shelf.home), made.id]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            assert shelf.store.try_hold(made.id) is None
            assert f"'x' is in use by process {holder.pid}" in str(shelf.store.in_use(made))
        finally:
            holder.kill()
    lock = shelf.store.try_hold(made.id)
    assert lock is not None
    assert shelf.store.try_hold(made.id) is None
    lock.release()


def test_a_lock_on_a_session_that_is_deleted_is_no_lock(shelf: Shelf) -> None:
    made = shelf.store.create()
    lock = shelf.store.try_hold(made.id)
    assert lock is not None
    shelf.store.delete(made.id)
    with pytest.raises(NotFound):
        shelf.store.try_hold(made.id)
    lock.release()


MIGRATES = """
import sys
from pathlib import Path
from callboard.actors.runs.sessions.store import SessionStore

print(SessionStore(Path(sys.argv[1])).open_or_create_by_alias(sys.argv[2]).id)
"""


def test_processes_that_open_the_same_alias_at_once_get_one_session(shelf: Shelf) -> None:
    shelf.legacy("my-project.yaml")
    for alias in ("my-project", "brand-new"):
        command = [*forked_code(MIGRATES), str(shelf.home), alias]
        both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
        ids = {process.communicate(timeout=60)[0].strip() for process in both}
        assert len(ids) == 1
        assert as_id(ids.pop()) is not None
    assert len(list((shelf.home / "sessions" / "by-id").iterdir())) == 2


def test_who_looks_for_a_session_that_is_not_there_is_told_which_are(shelf: Shelf) -> None:
    shelf.store.create(alias="bridges")
    with pytest.raises(NotFound, match=says("protocol.problems.suggestion", name="bridges")):
        shelf.store.find("bridge")
    with pytest.raises(NotFound):
        shelf.store.find("0b6f2d4c-8e11-4c0c-9d7e-7d2b5e0e9a35")


def test_a_session_is_a_struct_that_can_be_shown(shelf: Shelf) -> None:
    made = shelf.store.create(alias="x")
    assert msgspec.to_builtins(shelf.store.meta(made))["alias"] == "x"


def test_the_store_needs_no_directory_to_be_empty(tmp_path: Path) -> None:
    assert SessionStore(tmp_path / "nowhere").list(everywhere=True) == []


def test_a_file_is_without_what_the_vault_has_handed_out_and_without_thoughts_that_held_some(shelf: Shelf) -> None:
    """Whoever goes on in this process has the words as they were; a signed thought can't be sent again changed."""
    secret = "wk-a-secret-of-the-vault"
    handed_out(secret)
    thoughts = [{"form": "f", "data": f"about {secret}"}, {"form": "f", "data": "about plums"}]
    said = [{"role": "user", "content": f"it is {secret}"}]
    said += [{"role": "assistant", "content": "ok", "thought": thought} for thought in thoughts]
    called = {"tool_results": [], "text": "", "sequence": False, "thought": thoughts[0]}
    said.append({"role": "tool", "content": called})
    made = shelf.store.create(initial=Session(messages=said))
    again = shelf.again().open(made.id).session.messages
    assert secret not in shelf.store.path(made.id, None).read_text()
    assert [each["content"] for each in again[:3]] == ["it is [redacted]", "ok", "ok"]
    assert [each.get("thought") for each in again] == [None, None, thoughts[1], None]
    assert "thought" not in again[3]["content"]
    assert made.session.messages == said
