"""The suite's own check that no secret is in any log: it can fail, and it fails the suite."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import secret_watch
from support.waiting import PATIENCE

KEY = "cb_" + "0" * 8 + "_" + "A" * 32
LEAKS = {
    "a record of the log": "import logging\ndef test_it(): logging.getLogger('callboard.x').warning('sk-test')",
    "stderr": f"import sys\ndef test_it(): print('{KEY}', file=sys.stderr)",
    "an audit log": f"def test_it(tmp_path): (tmp_path / 'audit.jsonl').write_text('{{\"reason\": \"{KEY}\"}}')",
    "a content from before a change": (
        "def test_it(tmp_path):\n"
        "    place = tmp_path / 'changes' / 'blobs'\n"
        "    place.mkdir(parents=True)\n"
        "    (place / 'x').touch(mode=0o644)"
    ),
    "what a server has said": "from support import secret_watch\n"
    "def test_it(): secret_watch.told('server', 'Bearer open-sesame')",
}


@pytest.fixture(autouse=True)
def _nothing_is_left_for_the_real_check() -> None:
    secret_watch.TOLD.clear()


def test_a_secret_in_any_log_fails_the_session(tmp_path: Path) -> None:
    tests = Path(__file__).parent.parent
    (tmp_path / "conftest.py").write_text((tests / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {tests}\n")
    for number, source in enumerate(LEAKS.values()):
        (tmp_path / f"test_leak_{number}.py").write_text(source + "\n")
    (tmp_path / "test_clean.py").write_text("def test_clean(tmp_path): (tmp_path / 'audit.jsonl').write_text('{}')\n")
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rE", "--basetemp", str(tmp_path / "t")]
    done = subprocess.run([*argv, str(tmp_path)], capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path)
    shutil.rmtree(tmp_path / "t")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{len(LEAKS) + 1} passed, {len(LEAKS)} errors" in done.stdout, done.stdout
    assert done.stdout.count("secrets were written down") >= len(LEAKS)
    assert KEY not in done.stdout.partition("short test summary")[2], "the report tells only how it begins"


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {KEY}",
        "eyJhbGciOiJSUzI1NiJ9x." + "e" * 20 + "." + "s" * 20,
        "$argon2id$v=19$m=8",
        "the key sk-test",
    ],
)
def test_keys_tokens_and_hashes_are_recognised(text: str) -> None:
    assert len(secret_watch.secrets_in(text)) == 1


def test_the_page_s_address_is_told_on_purpose_and_only_as_a_line_of_its_own() -> None:
    line = f"callboard: the page: http://127.0.0.1:3400/#token={KEY}"
    assert not secret_watch.leaks([("Captured stderr call", f"one\n{line}\ntwo")], None)
    assert secret_watch.leaks([("Captured stderr call", f"GET {line}")], None)


def test_what_people_print_and_what_is_meant_to_hold_secrets_is_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "servers").mkdir()
    (tmp_path / "servers" / "3400.json").write_text(KEY)
    (tmp_path / "config.yaml").write_text("api_key: sk-test")
    assert not secret_watch.leaks([("Captured stdout call", KEY)], tmp_path)
    (tmp_path / "servers" / "events.jsonl").write_text(KEY)
    assert len(secret_watch.leaks([], tmp_path)) == 1
    (tmp_path / "servers" / "events.jsonl").unlink()


def test_a_pipe_and_a_file_without_end_do_not_keep_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_watch, "MOST_BYTES", 1024)
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "gone.log").symlink_to(tmp_path / "nowhere")
    (tmp_path / "long.log").write_text(KEY)
    os.truncate(tmp_path / "long.log", 1 << 40)
    assert len(secret_watch.leaks([], tmp_path)) == 1
    (tmp_path / "long.log").unlink()
