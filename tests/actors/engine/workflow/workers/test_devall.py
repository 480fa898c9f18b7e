"""DevAll's modules as the stand-ins have them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest
from support.waiting import PATIENCE

import callboard.actors.engine.workflow.workers.devall as room

HERE = Path(room.__path__[0])

SCRIPT = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("host", sys.argv[1])
host = importlib.util.module_from_spec(spec)
spec.loader.exec_module(host)
host.enter({"roots": [], "directory": ".", "workspace": ".", "vars": {}, "session_id": "s"}, lambda **_: "")
"""


def played(tmp_path: Path, code: str) -> str:
    """What code prints that finds the stand-ins."""
    command = [sys.executable, "-c", SCRIPT + code, str(HERE / "host.py")]
    return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout


def test_what_is_to_last_is_there_for_the_next_store(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    assert (
        played(
            tmp_path,
            """
from utils.attachments import AttachmentStore
from entity.messages import MessageBlockType
store = AttachmentStore("kept")
lasting = store.register_file("a.txt")
passing = store.register_file("a.txt", copy_file=False, persist=False)
again = store.register_file("a.txt", copy_file=False, persist=False, deduplicate=True)
made = store.register_bytes(b"GIF", mime_type="image/gif", kind=MessageBlockType.from_mime_type("image/gif"))
later = AttachmentStore("kept")
print(again is passing, later.get(passing.ref.attachment_id), len(later.list_records()))
print(later.get(lasting.ref.attachment_id) == lasting, lasting.ref.mime_type, lasting.ref.size)
print(later.to_message_block(made.ref.attachment_id).describe(), later.get(made.ref.attachment_id).kind.value)
""",
        )
        == "True None 2\nTrue text/plain 5\n[image attachment: attachment.gif] image\n"
    )


def test_a_workspace_is_listed_as_deep_as_is_wanted_without_what_is_hidden(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c.txt").write_text("c")
    (tmp_path / ".git").mkdir()
    print_all = "print([(each.path, each.type, each.depth) for each in iter_workspace_entries('.', max_depth=DEPTH)])"
    code = "from utils.workspace_scanner import iter_workspace_entries\n" + print_all
    assert played(tmp_path, code.replace("DEPTH", "1")) == "[('a', 'directory', 1)]\n"
    deep = [("a", "directory", 1), ("a/b", "directory", 2), ("a/b/c.txt", "file", 3)]
    assert played(tmp_path, code.replace("DEPTH", "5")) == f"{deep}\n"


@pytest.fixture
def filelock() -> ModuleType:
    """The stand-in, also where the package is installed."""
    spec = importlib.util.spec_from_file_location("filelock_stand_in", HERE / "filelock.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_lock_is_held_by_one_at_a_time_and_may_be_taken_again(filelock: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "new" / "a.lock"
    with filelock.FileLock(file) as held:
        with held:
            pass
        assert held.is_locked
        with pytest.raises(filelock.Timeout):
            filelock.FileLock(file, timeout=0).acquire()
        waiting = filelock.FileLock(file)
        thread = threading.Thread(target=waiting.acquire)
        thread.start()
        assert not waiting.is_locked
    thread.join(PATIENCE)
    assert waiting.is_locked
    waiting.release()
