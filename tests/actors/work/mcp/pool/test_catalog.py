"""What servers offer is remembered, and a file that can't be used is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from callboard.actors.work.mcp.pool import pool as module
from callboard.actors.work.mcp.pool.pool import Catalogs, ServerCatalog
from callboard.protocol.mcp.config import ToolList
from callboard.protocol.mcp.model import Implementation, McpTool, ToolAnnotations

DIGEST = "ab" * 32

CATALOG = ServerCatalog(
    server=Implementation(name="s", version="1.2"),
    version="2025-11-25",
    tools=(
        McpTool(
            name="read", description="Reads.", input_schema={"type": "object", "properties": {"a": {"type": "string"}}}
        ),
        McpTool(name="write", annotations=ToolAnnotations(destructive_hint=True)),
    ),
    instructions="Be kind.",
    fetched=1_700_000_000.5,
)


def test_what_was_put_is_found_by_another_process(tmp_path: Path) -> None:
    Catalogs(tmp_path / "mcp").put(DIGEST, CATALOG)
    assert Catalogs(tmp_path / "mcp").get(DIGEST) == CATALOG
    assert Catalogs(tmp_path / "mcp").get("cd" * 32) is None
    assert [path.name for path in (tmp_path / "mcp").iterdir()] == [f"{DIGEST}.json"]
    assert (tmp_path / "mcp" / f"{DIGEST}.json").stat().st_mode & 0o777 == 0o600


def test_the_newest_counts(tmp_path: Path) -> None:
    catalogs = Catalogs(tmp_path)
    catalogs.put(DIGEST, CATALOG)
    newer = ServerCatalog(server=CATALOG.server, version=CATALOG.version)
    catalogs.put(DIGEST, newer)
    assert catalogs.get(DIGEST) == Catalogs(tmp_path).get(DIGEST) == newer


@pytest.mark.parametrize(
    "broken", [b"", b"{", b"[]", b'{"server":{}}', b'{"server":1,"version":"v"}', b"\xff\xfe", b"null"]
)
def test_a_broken_file_is_none_and_is_written_anew(tmp_path: Path, broken: bytes) -> None:
    (tmp_path / f"{DIGEST}.json").write_bytes(broken)
    catalogs = Catalogs(tmp_path)
    assert catalogs.get(DIGEST) is None
    catalogs.put(DIGEST, CATALOG)
    assert Catalogs(tmp_path).get(DIGEST) == CATALOG


def test_one_that_is_too_large_is_not_kept_on_disk_nor_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Catalogs(tmp_path).put(DIGEST, CATALOG)
    monkeypatch.setattr(module, "MAX_CATALOG_BYTES", 100)
    assert Catalogs(tmp_path).get(DIGEST) is None
    catalogs = Catalogs(tmp_path / "other")
    catalogs.put(DIGEST, CATALOG)
    assert catalogs.get(DIGEST) == CATALOG
    assert not (tmp_path / "other").exists()


def test_where_nothing_can_be_written_it_is_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / "mcp").write_text("a file where the directory should be")
    catalogs = Catalogs(tmp_path / "mcp")
    assert catalogs.get(DIGEST) is None
    catalogs.put(DIGEST, CATALOG)
    assert catalogs.get(DIGEST) == CATALOG


def test_of_too_many_the_oldest_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry with a value that changes from run to run has another digest each time."""
    monkeypatch.setattr(module, "MOST_CATALOGS", 3)
    (tmp_path / "left.4711.part").write_text("by a process that was killed")
    os.utime(tmp_path / "left.4711.part", (0, 0))
    for number in range(5):
        Catalogs(tmp_path).put(f"{number}", CATALOG)
        os.utime(tmp_path / f"{number}.json", (number + 1, number + 1))
    Catalogs(tmp_path).put("9", CATALOG)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3.json", "4.json", "9.json"]


def test_only_the_tools_that_the_entry_admits_are_seen() -> None:
    assert CATALOG.within(ToolList()) is CATALOG
    assert [tool.name for tool in CATALOG.within(ToolList(deny=("wr*",))).tools] == ["read"]
    assert CATALOG.within(ToolList(allow=())).tools == ()
