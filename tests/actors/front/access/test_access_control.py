"""Who is let in."""

from __future__ import annotations

import base64
import time
from pathlib import Path

import pytest
import trio
from support.access_keys import HOST, LOCAL_TOKEN, AuditFile, Signer, access_for, made_key, showing
from support.cpu_time import slowness
from support.messages import says

from callboard.actors.front.access import access_control as access_module
from callboard.actors.front.access import credentials
from callboard.actors.front.access.access_control import AccessControl, check_may_listen, token_of
from callboard.protocol.control.caller import LOCAL, Caller
from callboard.protocol.errors import ConfigError, Denied, RateLimited, Saturated, Unauthorized, UsageError
from callboard.protocol.settings.api import ApiLimits, ApiSettings, Auth, Jwt

PEER = "203.0.113.9"


async def refusal(access: AccessControl, headers: dict[str, str], peer: str = PEER) -> Exception:
    with pytest.raises((Unauthorized, Denied, RateLimited)) as caught:
        await access.authenticate(headers, peer)
    return caught.value


async def test_a_key_lets_its_subject_in_and_another_does_not() -> None:
    token, entry = made_key("alice", "read:runs")
    access = access_for(entry)
    caller = await access.authenticate(showing(token), PEER)
    assert (caller.subject, caller.scopes) == ("alice", {"read:runs"})
    assert isinstance(await refusal(access, showing(made_key("mallory")[0])), Unauthorized)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer   "},
        {"authorization": f"Basic {LOCAL_TOKEN}"},
        {"authorization": f"Bearer {LOCAL_TOKEN}x"},
        {"authorization": f"Bearer {LOCAL_TOKEN[:-1]}"},
        {"authorization": f"Bearer {LOCAL_TOKEN}, Bearer other"},
        {"sec-websocket-protocol": "callboard.v1"},
        {"sec-websocket-protocol": "callboard.v1, bearer.!!!!"},
        {"sec-websocket-protocol": "bearer./w"},
        {"cookie": f"token={LOCAL_TOKEN}"},
    ],
)
async def test_without_a_token_that_counts_nobody_comes_in(headers: dict[str, str]) -> None:
    assert isinstance(await refusal(access_for(), {**HOST, **headers}, "127.0.0.1"), Unauthorized)


async def test_the_server_s_own_token_counts_on_this_machine_only() -> None:
    access = access_for()
    assert await access.authenticate(showing(LOCAL_TOKEN), "127.0.0.1") == LOCAL
    assert await access.authenticate(showing(LOCAL_TOKEN), "::1") == LOCAL
    assert isinstance(await refusal(access, showing(LOCAL_TOKEN), PEER), Unauthorized)


async def test_behind_a_trusted_proxy_the_server_s_own_token_is_of_no_use_to_strangers() -> None:
    access = access_for(trusted_proxies=("127.0.0.1",))
    forwarded = showing(LOCAL_TOKEN, **{"x-forwarded-for": PEER})
    assert isinstance(await refusal(access, forwarded, "127.0.0.1"), Unauthorized)


def test_pages_show_their_token_as_a_subprotocol() -> None:
    packed = base64.urlsafe_b64encode(LOCAL_TOKEN.encode()).rstrip(b"=").decode()
    assert token_of({"sec-websocket-protocol": f"callboard.v1, bearer.{packed}"}) == LOCAL_TOKEN


async def test_another_host_or_origin_is_refused_before_the_token_is_looked_at() -> None:
    access = access_for()
    assert isinstance(await refusal(access, {**showing(LOCAL_TOKEN), "host": "evil.test"}, "127.0.0.1"), Denied)
    assert isinstance(await refusal(access, showing(LOCAL_TOKEN, origin="https://evil.test"), "127.0.0.1"), Denied)


async def test_too_many_bad_keys_of_an_address_are_not_listened_to_for_a_while(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    computed = 0

    def owner(*_: object) -> None:
        nonlocal computed
        computed += 1

    token, entry = made_key("alice")
    access = access_for(entry)
    assert await access.authenticate(showing(token), PEER)
    monkeypatch.setattr(credentials, "_owner", owner)
    bad = [f"cb_{entry.id}_{number:032}" for number in range(30)]
    errors = [await refusal(access, showing(one)) for one in bad]
    assert [type(error) for error in errors] == [Unauthorized] * 10 + [RateLimited] * 20
    assert computed == access_module.BAD_LOGINS
    assert await access.authenticate(showing(token), PEER), "whose key is known comes in all the same"
    assert isinstance(await refusal(access, showing(bad[0]), "198.51.100.7"), Unauthorized), "others are not affected"
    last = errors[-1]
    assert isinstance(last, RateLimited)
    await trio.sleep(last.retry_after)
    assert isinstance(await refusal(access, showing("x")), Unauthorized)


async def flood(access: AccessControl, logins: int, peers: int) -> dict[str, int]:
    """Bad logins, a hundred at a time; how they ended."""
    ends: dict[str, int] = {}
    limiter = trio.CapacityLimiter(100)

    async def one(number: int) -> None:
        async with limiter:
            id = next(iter(access._ring._by_id))
            peer = f"203.0.{number % peers // 250}.{number % peers % 250}"
            try:
                await access.authenticate(showing(f"cb_{id}_{number:032}"), peer)
            except (Unauthorized, Saturated) as error:
                ends[error.code] = ends.get(error.code, 0) + 1

    async with trio.open_nursery() as nursery:
        for number in range(logins):
            nursery.start_soon(one, number)
    return ends


@pytest.mark.parametrize("logins", [1_000, pytest.param(10_000, marks=pytest.mark.soak)])
async def test_ten_thousand_bad_logins_neither_block_the_loop_nor_use_up_threads(logins: int) -> None:
    token, entry = made_key("alice")
    access = access_for(entry)
    started: set[int] = set()
    worst = 0.0
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            nonlocal worst
            while True:
                began = time.thread_time()
                await trio.sleep(0.01)
                worst = max(worst, time.thread_time() - began)
                started.add(access._ring._threads.borrowed_tokens)

        nursery.start_soon(watch)
        flooded = time.monotonic()
        ends = await flood(access, logins, peers=5)
        assert await access.authenticate(showing(token), PEER), "a good key is let in after it"
        nursery.cancel_scope.cancel()
    assert sum(ends.values()) == logins
    regained = access_module.BAD_LOGINS * (time.monotonic() - flooded) / 60  # the limit of an address is per minute
    assert ends["unauthorized"] <= 5 * (access_module.BAD_LOGINS + access_module.LOGINS_AT_ONCE + regained)
    assert max(started) <= credentials.HASHES_AT_ONCE
    assert worst < 2.0 * slowness(), "CPU seconds of the event loop's thread between two turns of one task"


async def test_bad_logins_leave_a_line_each_until_it_is_enough_and_then_one(
    tmp_path: Path,
    mock_clock: trio.testing.MockClock,  # on a slow machine the limit would have room again meanwhile
) -> None:
    audit = AuditFile(tmp_path)
    access = access_for(made_key("alice")[1], log=audit.log)
    for number in range(30):
        await refusal(access, showing(f"bad {number}"))
    lines = audit.lines()
    assert [line["action"] for line in lines] == ["AuthFailure"] * 10 + ["RateLimitRejection"]
    assert {line["peer"] for line in lines} == {PEER}
    assert {line["result"] for line in lines} == {"denied"}


async def test_strangers_can_t_write_the_audit_log_full(tmp_path: Path, mock_clock: trio.testing.MockClock) -> None:
    audit = AuditFile(tmp_path)
    access = access_for(log=audit.log)
    for number in range(500):
        await refusal(access, HOST if number % 2 else {"host": "evil.test"})
    await refusal(access, HOST, "198.51.100.7")
    lines = audit.lines()
    assert len(lines) == access_module.LINES_PER_ADDRESS + 1
    assert {line["action"] for line in lines} == {"AuthFailure", "AccessDenied"}


async def test_requests_are_counted_per_subject(mock_clock: trio.testing.MockClock) -> None:
    (alice, one), (bob, two) = made_key("alice"), made_key("bob")
    access = access_for(one, two, loopback=False, limits=ApiLimits(rate_limit_per_minute=5, rate_limit_burst=2))
    headers = {**showing(alice), "host": "10.0.0.1"}
    for _ in range(7):
        await access.authenticate(headers, PEER)
    assert isinstance(await refusal(access, headers), RateLimited)
    assert await access.authenticate({**headers, "authorization": f"Bearer {bob}"}, PEER)


async def test_on_loopback_nobody_is_counted_unless_the_settings_say_so(mock_clock: trio.testing.MockClock) -> None:
    token, entry = made_key("alice")
    access = access_for(entry)
    for _ in range(200):
        await access.authenticate(showing(token), "127.0.0.1")
    strict = access_for(entry, limits=ApiLimits(rate_limit_per_minute=1, rate_limit_burst=0))
    await strict.authenticate(showing(token), "127.0.0.1")
    assert isinstance(await refusal(strict, showing(token), "127.0.0.1"), RateLimited)


async def test_beyond_loopback_sixty_and_ten_are_the_default(mock_clock: trio.testing.MockClock) -> None:
    access = access_for(loopback=False)
    caller = Caller("alice", frozenset())
    for _ in range(70):
        access.charge(caller)
    with pytest.raises(RateLimited) as caught:
        access.charge(caller)
    assert 0 < caught.value.retry_after <= 120


def test_methods_of_the_websocket_ask_for_their_scopes(tmp_path: Path) -> None:
    audit = AuditFile(tmp_path)
    access = access_for(log=audit.log)
    reader = Caller("alice", frozenset({"read:runs"}))
    access.authorize_method(reader, "_run/list")
    with pytest.raises(Denied):
        access.authorize_method(reader, "_run/something_new_that_nobody_has_entered")
    access.authorize_method(LOCAL, "_run/something_new_that_nobody_has_entered")
    for method in ("_run/start", "_run/cancel", "_actor/send", "_question/answer", "_mcp/reload", "session/prompt"):
        with pytest.raises(Denied, match=says("front.access.scopes.need")):
            access.authorize_method(reader, method)
    access.authorize_method(LOCAL, "_mcp/reload")
    access.audit_method(LOCAL, "_run/cancel", "run-1")
    access.audit_method(LOCAL, "_run/list")
    access.audit_method(reader, "_run/cancel", "run-2", Denied("it is another's"))
    lines = audit.lines()
    assert [(line["action"], line["result"], line.get("target")) for line in lines if "target" in line] == [
        ("RunControl", "success", "run-1"),
        ("RunControl", "denied", "run-2"),
    ]
    assert sum(line["action"] == "AccessDenied" for line in lines) == 7


async def test_signed_tokens_come_in_by_the_same_gate() -> None:
    signer = Signer()
    async with signer.serving() as url:
        jwt = Jwt(issuer="https://issuer.test", audience="callboard", jwks_url=url)
        token, entry = made_key("alice")
        access = access_for(auth=Auth(keys=(entry,), jwt=jwt))
        assert (await access.authenticate(showing(signer.token()), PEER)).subject == "carol"
        assert (await access.authenticate(showing(token), PEER)).subject == "alice"
        only = access_for(auth=Auth(mode="StaticKeys", keys=(entry,), jwt=jwt))
        assert isinstance(await refusal(only, showing(signer.token())), Unauthorized)
        nobody = access_for(auth=Auth(mode="Disabled", keys=(entry,), jwt=jwt))
        assert isinstance(await refusal(nobody, showing(token)), Unauthorized)


# --- starting and reloading ----------------------------------------------------------------------------------


def test_case_105_a_server_that_would_be_open_to_all_does_not_start() -> None:
    entry = made_key("alice")[1]
    with pytest.raises(ConfigError, match=says("front.access.access_control.check_may_listen")):
        check_may_listen(ApiSettings(enabled=False), "127.0.0.1")
    with pytest.raises(UsageError, match="callboard keys new"):
        check_may_listen(ApiSettings(), "0.0.0.0")
    with pytest.raises(UsageError, match=says("front.access.access_control.check_may_listen.3")):
        check_may_listen(ApiSettings(auth=Auth(mode="Disabled", keys=(entry,))), "192.0.2.1")
    assert check_may_listen(ApiSettings(), "127.0.0.1")
    assert not check_may_listen(ApiSettings(auth=Auth(keys=(entry,))), "0.0.0.0")


async def test_after_a_reload_old_keys_are_refused_and_new_ones_count_at_once() -> None:
    (old, one), (new, two) = made_key("alice"), made_key("bob", "read:runs")
    access = access_for(one)
    await access.authenticate(showing(old), PEER)
    fixed = access.reload(ApiSettings(auth=Auth(keys=(two,)), limits=ApiLimits(max_body_bytes=2048)))
    assert fixed == ["limits.max_body_bytes"]
    assert (await access.authenticate(showing(new), PEER)).subject == "bob"
    assert isinstance(await refusal(access, showing(old)), Unauthorized)


async def test_a_reload_that_leaves_the_rates_alone_does_not_give_everybody_a_fresh_minute(
    mock_clock: trio.testing.MockClock,
) -> None:
    limits = ApiLimits(rate_limit_per_minute=1, rate_limit_burst=0)
    access = access_for(limits=limits)
    caller = Caller("alice", frozenset())
    access.charge(caller)
    access.reload(ApiSettings(limits=limits, log_level="debug"))
    with pytest.raises(RateLimited):
        access.charge(caller)
