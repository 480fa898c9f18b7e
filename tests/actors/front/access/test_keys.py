"""Static keys: whose they are, and what it costs to find out."""

from __future__ import annotations

import contextlib
import threading
from functools import partial

import pytest
import trio
from support.access_keys import access_for, made_key, showing

from callboard.actors.front.access import credentials
from callboard.actors.front.access.access_control import BAD_LOGINS
from callboard.actors.front.access.credentials import KeyRing, hashed, new_key
from callboard.protocol.errors import RateLimited, Saturated, Unauthorized
from callboard.protocol.settings.api import ApiKey


@pytest.fixture
def hashes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tokens for which hashes were computed."""
    computed: list[str] = []
    really = credentials._owner

    def counted(token: str, candidates: tuple[ApiKey, ...]) -> ApiKey | None:
        computed.append(token)
        return really(token, candidates)

    monkeypatch.setattr(credentials, "_owner", counted)
    return computed


async def test_a_new_key_and_its_hash_belong_together() -> None:
    token, id = new_key()
    ring = KeyRing([ApiKey(subject="alice", key_hash=hashed(token), scopes=("read:runs",), id=id)])
    caller = await ring.check(token)
    assert caller is not None
    assert (caller.subject, caller.scopes, caller.key) == ("alice", {"read:runs"}, id)
    assert await ring.check(token[:-1] + ("0" if token[-1] != "0" else "1")) is None


async def test_a_good_key_is_hashed_once_however_often_and_by_however_many_it_is_shown(hashes: list[str]) -> None:
    token, entry = made_key("alice")
    ring = KeyRing([entry])
    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(ring.check, token)
    assert ring.known(token) is not None
    assert hashes == [token]


async def test_the_clock_does_not_tell_which_ids_there_are(hashes: list[str]) -> None:
    _, entry = made_key("alice")
    ring = KeyRing([entry])
    strange, near = new_key()[0], f"cb_{entry.id}_{'0' * 64}"
    assert await ring.check(strange) is None
    assert await ring.check(near) is None
    assert hashes == [strange, near], "both cost one hash"


async def test_keys_of_nobody_keep_no_good_key_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    token, entry = made_key("alice")
    held = trio.Event()
    trio_token = trio.lowlevel.current_trio_token()
    really = credentials._owner

    def slow(shown: str, candidates: tuple[ApiKey, ...]) -> ApiKey | None:
        if shown != token:
            trio.from_thread.run(held.wait, trio_token=trio_token)
        return really(shown, candidates)

    monkeypatch.setattr(credentials, "_owner", slow)
    ring = KeyRing([entry])
    async with trio.open_nursery() as nursery:
        for _ in range(credentials.HASHES_IN_LINE):
            nursery.start_soon(ring.check, new_key()[0])
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(Saturated):
            await ring.check(new_key()[0])
        with trio.fail_after(60):
            assert await ring.check(token) is not None
        held.set()


async def test_who_hangs_up_while_a_bad_key_is_checked_has_shown_a_bad_key(monkeypatch: pytest.MonkeyPatch) -> None:
    _, entry = made_key("alice")
    access = access_for(entry)
    for number in range(BAD_LOGINS):
        with trio.CancelScope() as client, contextlib.suppress(Unauthorized):
            trio_token = trio.lowlevel.current_trio_token()
            hang_up = partial(trio.from_thread.run_sync, client.cancel, trio_token=trio_token)
            monkeypatch.setattr(credentials, "_owner", lambda *_, hang_up=hang_up: hang_up())
            await access.authenticate(showing(f"cb_{entry.id}_{number:064}"), "203.0.113.9")
    with pytest.raises(RateLimited):
        await access.authenticate(showing(f"cb_{entry.id}_{'f' * 64}"), "203.0.113.9")


async def test_keys_of_other_makers_are_tried_against_every_entry_without_an_id() -> None:
    entries = [ApiKey(subject=name, key_hash=hashed(f"my own key of {name}"), scopes=()) for name in ("alice", "bob")]
    caller = await KeyRing(entries).check("my own key of bob")
    assert caller is not None
    assert caller.subject == "bob"


async def test_a_flood_of_bad_keys_does_not_make_us_forget_the_good_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "MOST_CACHED", 5)
    monkeypatch.setattr(credentials, "_owner", lambda token, entries: entries[0] if token == "good" else None)
    ring = KeyRing([ApiKey(subject="alice", key_hash="x", scopes=())])
    await ring.check("good")
    for number in range(20):
        await ring.check(f"bad {number}")
    assert ring.known("good") is not None


async def test_who_comes_when_the_line_is_full_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "HASHES_IN_LINE", 3)
    held = trio.Event()
    token = trio.lowlevel.current_trio_token()
    monkeypatch.setattr(credentials, "_owner", lambda *_: trio.from_thread.run(held.wait, trio_token=token))
    ring = KeyRing([ApiKey(subject="alice", key_hash="x", scopes=())])
    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(ring.check, f"slow {number}")
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(Saturated, match="try again"):
            await ring.check("one too many")
        held.set()


async def test_one_that_gives_up_waiting_leaves_the_check_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    token, entry = made_key("alice")
    ring = KeyRing([entry])
    with trio.CancelScope() as scope:
        scope.cancel()
        await ring.check(token)
    assert await ring.check(token) is not None


async def test_what_is_far_too_long_is_not_looked_at(hashes: list[str]) -> None:
    ring = KeyRing([ApiKey(subject="alice", key_hash="x", scopes=())])
    assert await ring.check("x" * 5000) is None
    assert hashes == []


async def test_the_loop_goes_on_while_hashes_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()

    def slow(*_: object) -> None:
        done.wait(60)

    monkeypatch.setattr(credentials, "_owner", slow)
    ring = KeyRing([ApiKey(subject="alice", key_hash="x", scopes=())])
    async with trio.open_nursery() as nursery:

        async def check() -> None:
            await ring.check("bad")
            nursery.cancel_scope.cancel()

        nursery.start_soon(check)
        for _ in range(4):
            await trio.sleep(0.001)
            assert not nursery.cancel_scope.cancel_called
        done.set()
        await trio.sleep_forever()
