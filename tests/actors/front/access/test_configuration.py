"""SIGHUP: what of config.yaml is taken while the server runs."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from support.access_keys import AuditFile, access_for, made_key, showing

from callboard.actors.front.access.access_control import reload
from callboard.protocol.errors import Unauthorized
from callboard.protocol.settings.api import ApiKey


def write(folder: Path, *keys: ApiKey, **more: object) -> None:
    entries = [{"subject": k.subject, "id": k.id, "key_hash": k.key_hash, "scopes": list(k.scopes)} for k in keys]
    (folder / "config.yaml").write_text(json.dumps({"api": {"auth": {"keys": entries}, **more}}))


async def test_new_keys_count_and_old_ones_don_t(tmp_path: Path) -> None:
    (old, one), (new, two) = made_key("alice"), made_key("bob")
    audit = AuditFile(tmp_path)
    access = access_for(one, log=audit.log)
    write(tmp_path, two, audit={"sink": "file", "file": str(audit.path)}, listen_addr="127.0.0.1:9")
    assert await reload(access, tmp_path)
    assert (await access.authenticate(showing(new), "127.0.0.1")).subject == "bob"
    with pytest.raises(Unauthorized):
        await access.authenticate(showing(old), "127.0.0.1")
    (line,) = [line for line in audit.lines() if line["action"] == "ConfigReload"]
    assert line["result"] == "success"
    assert line["details"] == {
        "changed": ["audit.file", "audit.sink", "auth.keys", "listen_addr"],
        "needs_restart": ["listen_addr"],
    }
    assert two.key_hash not in json.dumps(line)


async def test_case_109_a_broken_file_changes_nothing_and_every_problem_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token, entry = made_key("alice")
    audit = AuditFile(tmp_path)
    access = access_for(entry, log=audit.log)
    before = access.settings
    (tmp_path / "config.yaml").write_text(
        "api:\n  listen_addr: x\n  limits: {max_body_bytes: 0}\n  audit: {sink: tape}\n"
    )
    with caplog.at_level(logging.INFO, "callboard.server.access"):
        assert not await reload(access, tmp_path)
    assert access.settings is before
    assert (await access.authenticate(showing(token), "127.0.0.1")).subject == "alice"
    for key in ("listen_addr", "max_body_bytes", "sink"):
        assert key in caplog.text
    assert [(line["action"], line["result"]) for line in audit.lines()] == [("ConfigReload", "error")]
    (tmp_path / "config.yaml").write_text("api: [\n")
    assert not await reload(access, tmp_path)


async def test_the_level_of_the_log_is_taken(tmp_path: Path) -> None:
    logger = logging.getLogger("callboard")
    level = logger.level
    try:
        write(tmp_path, log_level="debug")
        assert await reload(access_for(), tmp_path)
        assert logger.level == logging.DEBUG
    finally:
        logger.setLevel(level)
