"""The audit log, and the thread that writes lines."""

from __future__ import annotations

import io
import json
import socket
import threading
from pathlib import Path

import pytest
from support.access_keys import AuditFile
from support.waiting import PATIENCE

from callboard.actors.front.access.audit import Audit
from callboard.actors.io import lines as lines_module
from callboard.actors.io.lines import FileSink, StreamSink, SyslogSink, ThreadedLines
from callboard.actors.io.secret_redaction import Redactor
from callboard.actors.io.server_log import about
from callboard.protocol.control.caller import Caller
from callboard.protocol.settings.api import AuditSettings


class Slow:
    """A sink that writes nothing until it may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.began = threading.Event()
        self.written: list[str] = []

    def write(self, line: bytes) -> None:
        self.began.set()
        self.may.wait(PATIENCE)
        self.written.append(line.decode())

    def close(self) -> None:
        pass


def test_a_line_says_who_did_what_to_what_and_when(tmp_path: Path) -> None:
    audit = AuditFile(tmp_path)
    with about(request_id="r-1", peer="192.0.2.1"):
        audit.log.log("SessionDelete", caller=Caller("alice", frozenset(), key="k1"), target="s-1")
    audit.log.log("ConfigReload", "error", reason="x" * 1000)
    first, second = audit.lines()
    stamp = first.pop("timestamp")
    assert stamp.endswith("Z")
    assert first == {
        "action": "SessionDelete",
        "result": "success",
        "subject": "alice",
        "key_id": "k1",
        "peer": "192.0.2.1",
        "request_id": "r-1",
        "target": "s-1",
    }
    assert len(second["reason"]) == 300
    assert audit.path.stat().st_mode & 0o777 == 0o600


def test_secrets_do_not_get_into_it(tmp_path: Path) -> None:
    audit = AuditFile(tmp_path, Redactor(["the-provider-key"]))
    audit.log.log(
        "McpReload", "error", reason="Bearer abcdefghijkl failed with the-provider-key", target="#token=abcdef99"
    )
    text = json.dumps(audit.lines())
    for secret in ("abcdefghijkl", "the-provider-key", "abcdef99"):
        assert secret not in text


def test_a_file_that_has_grown_is_set_aside_and_only_so_many_are_kept(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "a" / "audit.jsonl", max_bytes=100, keep=2)
    for number in range(20):
        sink.write(f"{number:02} ".encode() + b"x" * 40)
    sink.close()
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    kept = "".join((tmp_path / "a" / name).read_text() for name in ("audit.jsonl.2", "audit.jsonl.1", "audit.jsonl"))
    assert [line[:2] for line in kept.splitlines()] == [f"{number:02}" for number in range(14, 20)]


def test_a_file_that_somebody_moved_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    sink = FileSink(path, max_bytes=10_000, keep=2)
    sink.write(b"before")
    path.rename(tmp_path / "rotated")
    sink.write(b"after")
    sink.close()
    assert (path.read_text(), (tmp_path / "rotated").read_text()) == ("after\n", "before\n")


def test_who_logs_never_waits_and_what_found_no_room_is_counted() -> None:
    sink = Slow()
    lines = ThreadedLines(sink, most=10)
    lines.put("first")
    assert sink.began.wait(PATIENCE)
    for number in range(20):
        lines.put(str(number))
    assert lines.dropped == 15
    sink.may.set()
    lines.finish(10)
    assert sink.written[0] == "first"
    assert "15 lines before this one were dropped" in sink.written[1]
    assert sink.written[2:] == ["0", "1", "2", "3", "4"]


def test_a_sink_that_fails_loses_its_line_and_nothing_else() -> None:
    stream = io.StringIO()
    lines = ThreadedLines(StreamSink(stream))
    stream.close()
    lines.put("nowhere")
    lines.finish(10)
    assert lines.lost == 1


def test_syslog_gets_datagrams_also_after_it_was_restarted(tmp_path: Path) -> None:
    address = str(tmp_path / "log")

    def opened() -> socket.socket:
        there = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        there.settimeout(PATIENCE)
        there.bind(address)
        return there

    sink = SyslogSink("auth", address)
    with opened() as there:
        sink.write(b"one")
        assert there.recv(1000).startswith(b"<37>callboard[")
    Path(address).unlink()
    with opened() as there:
        sink.write(b"two")
        assert there.recv(1000).endswith(b": two")
    sink.close()


def test_a_reload_turns_it_to_another_file_and_loses_nothing(tmp_path: Path) -> None:
    audit = Audit(AuditSettings(sink="file", file=str(tmp_path / "one")))
    for _ in range(100):
        audit.log("ToolExecute")
    audit.configure(AuditSettings(sink="file", file=str(tmp_path / "two")))
    audit.log("ConfigReload")
    audit.close()
    for thread in threading.enumerate():
        if thread.name == "callboard audit":
            thread.join(PATIENCE)
    assert len((tmp_path / "one").read_text().splitlines()) == 100
    assert json.loads((tmp_path / "two").read_text())["action"] == "ConfigReload"


def test_off_and_a_stderr_that_is_not_there_write_nothing() -> None:
    for settings in (AuditSettings(sink="off"), AuditSettings(sink="stderr")):
        audit = Audit(settings)
        audit.log("McpReload")
        audit.close()


def test_on_stderr_it_is_a_line_of_json() -> None:
    stream = io.StringIO()
    audit = Audit(AuditSettings(), stream=stream)
    audit.log("McpReload", subject="alice")
    audit.close()
    assert json.loads(stream.getvalue())["subject"] == "alice"


@pytest.mark.parametrize("facility", lines_module._FACILITIES)
def test_every_facility_that_the_settings_allow_is_known(facility: str) -> None:
    from callboard.protocol.settings.api import FACILITIES

    assert set(lines_module._FACILITIES) == set(FACILITIES)
