"""Bundles: the files of an agent, as a gateway packs and a worker unpacks them."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec
import pytest
from support.messages import says

from callboard.actors.front.cluster.bundle import MOST, BundleLost, Packed, pack, unpacked
from callboard.protocol.errors import UsageError
from callboard.protocol.requests import RunRequest
from callboard.supervisors.journal.row import hash_of


def agent(home: Path) -> Path:
    directory = home / "mine"
    (directory / "scripts").mkdir(parents=True)
    (directory / "graph.yaml").write_text("name: mine")
    (directory / "scripts" / "do.sh").write_text("echo")
    (directory / "scripts" / "do.sh").chmod(0o755)
    return directory


def names(data: bytes) -> list[str]:
    return sorted(msgspec.msgpack.decode(data, type=Packed).files)


async def there(request: RunRequest, data: bytes, home: Path) -> Path:
    async def read() -> bytes:
        return data

    found = await unpacked(request, hash_of(data), read, {"XDG_CACHE_HOME": str(home)})
    assert isinstance(found.target, str)
    return Path(found.target)


async def test_an_agent_is_unpacked_as_it_was_packed_and_once(tmp_path: Path) -> None:
    data, target = pack(agent(tmp_path), tmp_path / "config")
    assert (target, names(data)) == ("mine", ["mine/graph.yaml", "mine/scripts/do.sh"])
    assert pack(tmp_path / "mine", tmp_path / "config") == (data, target)  # the same, whoever packs it
    place = await there(RunRequest(target=target), data, tmp_path / "cache")
    assert (place / "graph.yaml").read_text() == "name: mine"
    assert stat.S_IMODE((place / "scripts" / "do.sh").stat().st_mode) == 0o700
    (place / "graph.yaml").write_text("changed")
    again = await there(RunRequest(target=target), data, tmp_path / "cache")
    assert (again / "graph.yaml").read_text() == "changed"


def test_a_file_takes_its_directory_along_and_an_agent_of_the_configuration_those_beside_it(tmp_path: Path) -> None:
    directory = agent(tmp_path / "config" / "agents")
    (tmp_path / "config" / "agents" / "other").mkdir()
    (tmp_path / "config" / "agents" / "other" / "config.yaml").write_text("name: other")
    data, target = pack(directory, tmp_path / "config")
    assert (target, "agents/other/config.yaml" in names(data)) == ("agents/mine", True)
    data, target = pack(directory / "graph.yaml", tmp_path)
    assert (target, names(data)) == ("mine/graph.yaml", ["mine/graph.yaml", "mine/scripts/do.sh"])


def test_what_is_hidden_or_a_key_and_what_a_link_leads_to_stays(tmp_path: Path) -> None:
    directory = agent(tmp_path)
    (directory / ".ssh").mkdir()
    for name in (".env", ".env.local", "prod.env", "tls.key", "tls.pem", "vault.age", ".ssh/id", ".netrc"):
        (directory / name).write_text("secret")
    (directory / "passwd").symlink_to("/etc/passwd")
    assert names(pack(directory, tmp_path)[0]) == ["mine/graph.yaml", "mine/scripts/do.sh"]


def test_what_is_too_large_or_a_home_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = agent(tmp_path)
    (directory / "large").write_bytes(bytes(MOST))
    with pytest.raises(UsageError, match=says("front.cluster.bundle.pack.2", MOST=8)):
        pack(directory, tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "flow.yaml").write_text("x")
    with pytest.raises(UsageError, match=says("front.cluster.bundle.pack")):
        pack(tmp_path / "flow.yaml", tmp_path / "config")


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "mine/../../out"])
async def test_a_bundle_writes_nothing_outside_of_its_place(tmp_path: Path, name: str) -> None:
    data = msgspec.msgpack.encode(Packed({name: (False, b"x")}))
    with pytest.raises(BundleLost, match=says("front.cluster.bundle._unpack")):
        await there(RunRequest(target="mine"), data, tmp_path / "cache")
    assert not list(tmp_path.rglob("out"))


async def test_a_bundle_that_is_another_than_its_hash_says_is_refused(tmp_path: Path) -> None:
    async def read() -> bytes:
        return b"another"

    with pytest.raises(BundleLost):
        await unpacked(RunRequest(target="mine"), hash_of(b"wanted"), read, {"XDG_CACHE_HOME": str(tmp_path)})
