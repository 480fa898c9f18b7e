"""What systemd is told."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from support.waiting import PATIENCE

from callboard.actors.front.server.serving import notify


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told_over_its_socket(tmp_path: Path, abstract: bool) -> None:
    path = str(tmp_path / "notify")
    address = f"@{path}" if abstract else path
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
        there.settimeout(PATIENCE)
        there.bind("\0" + path if abstract else path)
        assert notify("READY=1", {"NOTIFY_SOCKET": address})
        assert there.recv(100) == b"READY=1"


def test_without_systemd_nothing_happens(tmp_path: Path) -> None:
    assert not notify("READY=1", {})
    assert not notify("READY=1", {"NOTIFY_SOCKET": str(tmp_path / "nobody")})
    assert not notify("READY=1", {"NOTIFY_SOCKET": "tcp:1"})
