"""The file that carries a large state: whatever happens, it does not stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from callboard.actors.engine.graph.nodes.script import state_file
from callboard.actors.io import temporary
from callboard.protocol.errors import NodeFailed


def test_it_is_for_us_alone_and_gone_at_the_end_of_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with state_file(b"x" * 100_000) as name:
        path = Path(name)
        assert path.is_relative_to(tmp_path)
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.read_bytes() == b"x" * 100_000
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []


def test_a_directory_that_can_t_be_written_to_is_a_failure_of_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        temporary, "usual_bases", lambda: [temporary.ProcessDirectoryBase(tmp_path / "gone" / "x", shared=True)]
    )
    told = pytest.raises(NodeFailed, match="the state could not be written to a temporary file: No such file")
    with told, state_file(b"x"):
        pass
