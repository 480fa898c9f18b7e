"""A newer table: fetched, checked, kept as a whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest
from support.messages import has_message, says

from callboard.actors.work.models.prices.price_lookup import PriceTables, updated_file, vendored
from callboard.actors.work.models.prices.update import update
from callboard.protocol.errors import ConfigError, UpstreamError

TODAY = date(2026, 11, 23)
SONNET = {"id": "m", "match": {"equals": "m"}, "prices": {"input_mtok": 1, "output_mtok": 2}}
GOOD = json.dumps([{"id": "lab", "api_pattern": "https://lab", "models": [SONNET]}]).encode()


def _environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_DATA_HOME": str(tmp_path / "data")}


class _Answering(BaseHTTPRequestHandler):
    answers: ClassVar[dict[str, tuple[int, bytes]]] = {}

    def do_GET(self) -> None:
        status, body = self.answers[self.path]
        self.send_response(status)
        if status == 302:
            self.send_header("location", body.decode())
            body = b""
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def _server(**answers: tuple[int, bytes]) -> Iterator[str]:
    paths = {f"/{name}": answer for name, answer in answers.items()}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("_OfThese", (_Answering,), {"answers": paths}))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


async def test_a_file_becomes_the_table_that_counts(tmp_path: Path) -> None:
    file = tmp_path / "their.json"
    file.write_bytes(GOOD)
    updated = await update(str(file), _environ(tmp_path), today=TODAY)
    assert updated.file == tmp_path / "data/callboard/prices.json"
    kept = PriceTables(_environ(tmp_path))
    assert [each.id for each in kept.table.providers] == ["lab"]
    assert (kept.table.made, kept.table.source, kept.problem) == (TODAY, str(file), "")


async def test_a_url_is_fetched_and_redirects_are_followed(tmp_path: Path) -> None:
    with _server(good=(200, GOOD), moved=(302, b"/good")) as url:
        await update(f"{url}/moved", _environ(tmp_path), today=TODAY)
    assert PriceTables(_environ(tmp_path)).table.source.endswith("/moved")


@pytest.mark.parametrize(
    ("status", "body"), [(200, b"<html>"), (200, GOOD[:-20]), (200, b"[]"), (404, b""), (500, GOOD)]
)
async def test_what_is_broken_changes_nothing(tmp_path: Path, status: int, body: bytes) -> None:
    environ = _environ(tmp_path)
    with _server(good=(200, GOOD), bad=(status, body)) as url:
        await update(f"{url}/good", environ, today=TODAY)
        before = updated_file(environ).read_bytes()
        with pytest.raises((ConfigError, UpstreamError), match="/bad"):
            await update(f"{url}/bad", environ, today=TODAY)
    assert updated_file(environ).read_bytes() == before
    assert [path.name for path in updated_file(environ).parent.iterdir()] == ["prices.json"]


async def test_a_server_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UpstreamError, match=says("work.models.prices.update._fetched.2")):
        await update("http://127.0.0.1:1/x", _environ(tmp_path), today=TODAY)


async def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says("work.models.prices.update._contents", file="…none.json")):
        await update(str(tmp_path / "none.json"), _environ(tmp_path), today=TODAY)


async def test_a_directory_that_can_not_be_made_is_told(tmp_path: Path) -> None:
    file = tmp_path / "their.json"
    file.write_bytes(GOOD)
    (tmp_path / "data").write_text("a file")
    with pytest.raises(ConfigError, match=says("work.models.prices.price_lookup.keep")):
        await update(str(file), _environ(tmp_path), today=TODAY)


def test_without_an_update_the_table_is_ours(tmp_path: Path) -> None:
    kept = PriceTables(_environ(tmp_path))
    assert kept.table is vendored()
    assert kept.problem == ""


async def test_an_update_that_is_older_than_ours_does_not_count(tmp_path: Path) -> None:
    file = tmp_path / "their.json"
    file.write_bytes(GOOD)
    await update(str(file), _environ(tmp_path), today=date(2020, 1, 1))
    assert PriceTables(_environ(tmp_path)).table is vendored()


def test_a_kept_file_that_is_broken_is_told_and_ours_counts(tmp_path: Path) -> None:
    file = updated_file(_environ(tmp_path))
    file.parent.mkdir(parents=True)
    file.write_text("{")
    kept = PriceTables(_environ(tmp_path))
    assert kept.table is vendored()
    assert has_message(kept.problem, "work.models.prices.price_lookup.PriceTables.__init__.2")
    assert str(file) in kept.problem
