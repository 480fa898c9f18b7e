"""Tokens on disk: who may read them, and which files are not used."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest
import trio
import trio.testing
from support.messages import says

from callboard.actors.io.oauth.authorization import AuthServer
from callboard.actors.io.oauth.token import LOCK_WITHIN, MOST_BYTES, OAuthToken, TokenFile
from callboard.protocol.errors import ConfigError, UpstreamError

SERVER = AuthServer(client_id="me", token_url="https://id.example/token")
TOKEN = OAuthToken(access_token="s3cret-a", refresh_token="s3cret-r", scopes=("a", "b"), lifetime=60.0, received=1000.0)


def test_a_token_comes_back_as_it_was(file: TokenFile) -> None:
    assert file.read(SERVER) is None
    file.write(TOKEN, SERVER)
    assert file.read(SERVER) == TOKEN
    assert file.remove()
    assert not file.remove()
    assert file.read(SERVER) is None


def test_only_its_owner_may_read_it_whatever_the_umask(file: TokenFile) -> None:
    before = os.umask(0)
    try:
        file.write(TOKEN, SERVER)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.folder.stat().st_mode) == 0o700


async def test_the_lock_is_the_owners_as_well(file: TokenFile) -> None:
    await file.put(TOKEN, SERVER)
    assert {stat.S_IMODE(path.stat().st_mode) for path in file.folder.iterdir()} == {0o600}
    assert len(list(file.folder.iterdir())) == 2


def test_a_directory_that_was_open_is_closed(file: TokenFile) -> None:
    file.folder.mkdir(parents=True, mode=0o777)
    file.folder.chmod(0o777)
    file.write(TOKEN, SERVER)
    assert stat.S_IMODE(file.folder.stat().st_mode) == 0o700


def test_a_directory_that_is_a_link_is_not_used(file: TokenFile, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    file.folder.parent.mkdir(parents=True)
    file.folder.symlink_to(elsewhere)
    with pytest.raises(ConfigError, match=says("io.oauth.token.TokenFile.write")):
        file.write(TOKEN, SERVER)
    assert not list(elsewhere.iterdir())


def test_a_token_of_another_server_or_client_is_none_of_ours(file: TokenFile) -> None:
    file.write(TOKEN, SERVER)
    assert file.read(AuthServer(client_id="other", token_url=SERVER.token_url)) is None
    assert file.read(AuthServer(client_id="me", token_url="https://evil.example/token")) is None
    assert file.read(AuthServer(client_id="me", token_url=SERVER.token_url, scopes=("more",))) == TOKEN


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the file is damaged"),
        (b"not json", "the file is damaged"),
        (b"[]", "the file is damaged"),
        (b'{"access_token": "s3cret"}', "the file is damaged"),
        (b'{"server": "x", "access_token": 5, "received": 0}', "the file is damaged"),
        (
            b'{"version": 2, "server": "x", "access_token": "s3cret", "received": 0}',
            says("io.oauth.token.TokenFile.token_in.2", version=2),
        ),
        (b"[" * (MOST_BYTES - 1), "the file is damaged"),
        (b"x" * (MOST_BYTES + 1), says("io.oauth.token.TokenFile._bytes.5")),
        (b"\xff\xfe\x00", "the file is damaged"),
    ],
)
def test_a_file_that_makes_no_sense_is_named(file: TokenFile, data: bytes, words: str) -> None:
    file.write(TOKEN, SERVER)
    file.path.write_bytes(data)
    with pytest.raises(ConfigError, match=words) as error:
        file.read(SERVER)
    assert str(file.path) in str(error.value)
    assert str(error.value).endswith("remove the file and sign in again")
    assert "s3cret" not in str(error.value)
    file.write(TOKEN, SERVER)
    assert file.read(SERVER) == TOKEN


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_could_touch_is_not_used(file: TokenFile, mode: int) -> None:
    file.write(TOKEN, SERVER)
    file.path.chmod(mode)
    with pytest.raises(ConfigError, match=f"mode {mode:o}, expected 600"):
        file.read(SERVER)


def test_links_pipes_and_directories_are_no_files(file: TokenFile, tmp_path: Path) -> None:
    file.write(TOKEN, SERVER)
    moved = file.path.rename(tmp_path / "moved")
    file.path.symlink_to(moved)
    with pytest.raises(ConfigError, match=says("io.oauth.token.TokenFile._bytes")):
        file.read(SERVER)
    file.path.unlink()
    os.mkfifo(file.path, 0o600)
    with pytest.raises(ConfigError, match=says("io.oauth.token.TokenFile._bytes.2")):
        file.read(SERVER)
    file.path.unlink()
    file.path.mkdir(mode=0o700)
    with pytest.raises(ConfigError, match=says("io.oauth.token.TokenFile._bytes.2")):
        file.read(SERVER)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_can_not_be_read(file: TokenFile) -> None:
    file.write(TOKEN, SERVER)
    file.path.chmod(0)
    with pytest.raises(ConfigError, match="Permission denied"):
        file.read(SERVER)


def test_any_name_is_a_name_of_its_own(tmp_path: Path) -> None:
    names = ["a/b", "a-b", "../x", "..", "", "x" * 5000, "ü", "a\0b", "\udc80", "A", "a"]
    files = [TokenFile(tmp_path, name) for name in names]
    assert len({file.path for file in files}) == len(names)
    for file in files:
        assert file.path.parent == tmp_path
        file.write(TOKEN, SERVER)


def test_what_could_not_be_written_leaves_the_old_one(file: TokenFile, tmp_path: Path) -> None:
    file.write(TOKEN, SERVER)
    other = TokenFile(file.path, "below a file")
    with pytest.raises(ConfigError, match=says("io.oauth.token.TokenFile.write")):
        other.write(TOKEN, SERVER)
    assert file.read(SERVER) == TOKEN


async def test_one_at_a_time(file: TokenFile) -> None:
    inside = most = 0

    async def change() -> None:
        nonlocal inside, most
        async with file.locked():
            inside += 1
            most = max(most, inside)
            await trio.sleep(0.01)
            inside -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(change)
    assert most == 1


async def test_a_lock_that_is_held_for_too_long(file: TokenFile, clock: trio.testing.MockClock) -> None:
    async with file.locked():

        async def later() -> None:
            await trio.sleep(0.1)
            clock.jump(LOCK_WITHIN)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(later)
            with pytest.raises(UpstreamError, match=says("io.oauth.token.TokenFile.locked")):
                async with file.locked():
                    raise AssertionError("it was free")


async def test_a_file_system_without_locks(file: TokenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_handle: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fails)
    with pytest.raises(
        ConfigError, match=says("io.oauth.token.TokenFile._lock", _lock_path="….lock", error="No locks available")
    ):
        async with file.locked():
            pass


async def test_who_is_cancelled_while_waiting_leaves_the_lock(file: TokenFile) -> None:
    async with file.locked():
        with trio.move_on_after(0.1) as scope:
            async with file.locked():
                raise AssertionError("it was free")
        assert scope.cancelled_caught
    async with file.locked():
        pass


async def test_a_lock_that_is_a_link_is_not_followed(file: TokenFile, tmp_path: Path) -> None:
    file.folder.mkdir(parents=True)
    file.path.with_name(f"{file.path.name}.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(ConfigError, match=says("io.oauth.token.TokenFile._open_lock", _lock_path="….lock")):
        async with file.locked():
            pass
    assert not (tmp_path / "victim").exists()
