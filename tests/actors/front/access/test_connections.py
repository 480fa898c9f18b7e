"""A connection ends when its key does, and there are only so many of them."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
import trio
from support.access_keys import AUDIENCE, HOST, ISSUER, LOCAL_TOKEN, Signer, access_for, made_key, showing
from support.access_server import USER, AccessServer, open_access_server, started
from support.http_server import SOON, Serve
from support.waiting import until
from trio_websocket import (
    ConnectionClosed,
    ConnectionRejected,
    WebSocketConnection,
    connect_websocket_url,
    open_websocket_url,
)

from callboard.actors.front.access import access_control as access_module
from callboard.actors.front.access.access_control import AccessControl
from callboard.actors.front.access.limits import ConnectionLimiter
from callboard.protocol.control.caller import LOCAL
from callboard.protocol.errors import Saturated
from callboard.protocol.settings.api import ApiLimits, ApiSettings, Auth, Jwt

PEER = "203.0.113.9"


def connect(access_server: AccessServer, who: str) -> Any:
    """A websocket of this caller's."""
    headers = [(b"authorization", f"Bearer {access_server.keys[who]}".encode())]
    return open_websocket_url(f"ws://127.0.0.1:{access_server.api_server.port}/ws", extra_headers=headers)


def without(access_server: AccessServer, who: str) -> None:
    """Take a caller's key out of the configuration, and have the server read it."""
    file = access_server.config / "config.yaml"
    said = json.loads(file.read_text())
    said["api"]["auth"]["keys"] = [key for key in said["api"]["auth"]["keys"] if key["subject"] != who]
    file.write_text(json.dumps(said))
    access_server.api_server.server.hang_up()


async def test_a_websocket_ends_when_its_key_is_taken_away_and_what_it_has_started_goes_on(
    access_server: AccessServer,
) -> None:
    run = await started(access_server)
    async with connect(access_server, "alice") as alice, connect(access_server, "bob") as bob:
        without(access_server, "alice")
        with trio.fail_after(SOON):
            with pytest.raises(ConnectionClosed) as closed:
                await alice.get_message()
            assert closed.value.reason.code == 1008
            await bob.send_message('{"jsonrpc":"2.0","id":1,"method":"_server/info","params":{}}')
            assert "bob" in await bob.get_message()
    assert (await access_server.api_server.get(f"/v1/runs/{run}"))["status"] in ("running", "waiting")


async def test_a_stream_of_events_ends_when_its_key_is_taken_away(access_server: AccessServer) -> None:
    run = await started(access_server)
    async with access_server.http("alice") as http:
        stream = http.stream("GET", f"/v1/runs/{run}/events", headers={"accept": "text/event-stream"})
        async with stream as response:
            pieces = response.aiter_raw()
            assert await anext(pieces)
            without(access_server, "alice")
            with trio.fail_after(SOON), pytest.raises(httpx.RemoteProtocolError):
                [piece async for piece in pieces]
    assert await access_server.status("alice", "GET", "/v1/runs") == 401


async def test_a_key_whose_hash_was_exchanged_is_another_key() -> None:
    _, entry = made_key("alice")
    other = ApiSettings(auth=Auth(keys=(made_key("alice")[1],)))
    access = access_for(entry)
    caller = access_module.caller_of(entry)
    with access.connection(caller) as stay, access.connection(LOCAL) as ours:
        access.reload(access.settings)
        assert not stay.cancel_called, "nothing has changed"
        access.reload(other)
        assert stay.cancel_called
        assert not ours.cancel_called
    with access.connection(caller) as late:
        await trio.lowlevel.checkpoint()
    assert late.cancelled_caught, "it was let in just before its key was taken away"


async def test_a_signed_token_keeps_a_connection_as_long_as_it_counts(
    autojump_clock: trio.testing.MockClock,
) -> None:
    signer = Signer()
    async with signer.serving() as url:
        jwt = Jwt(issuer=ISSUER, audience=AUDIENCE, jwks_url=url, leeway_seconds=5)
        now = 1_000_000.0
        settings = ApiSettings(auth=Auth(jwt=jwt))
        access = AccessControl(settings, local_token=LOCAL_TOKEN, loopback=False, environ={}, now=lambda: now)
        with autojump_off(autojump_clock):
            caller = await access.authenticate(showing(signer.token(exp=now + 100, iat=now)), "127.0.0.1")
        with access.connection(caller):
            await trio.sleep(104)
        with access.connection(caller) as stay:
            await trio.sleep(106)
        assert stay.cancelled_caught
        with access.request(caller):
            await trio.sleep(200)
        with access.connection(caller) as stay:
            access.reload(ApiSettings())
            await trio.lowlevel.checkpoint()
        assert stay.cancelled_caught, "nobody signs any more"


class autojump_off:  # noqa: N801 - it reads as what it is
    """A block with real sockets: the mock clock stands."""

    def __init__(self, clock: trio.testing.MockClock) -> None:
        self._clock = clock

    def __enter__(self) -> None:
        self._clock.autojump_threshold = float("inf")

    def __exit__(self, *_: object) -> None:
        self._clock.autojump_threshold = 0


async def test_a_subject_has_only_so_many_websockets_and_the_user_of_the_server_as_many_as_they_want(
    serve: Serve, tmp_path: Path, nursery: trio.Nursery
) -> None:
    limits = {"websockets_per_subject": 3}
    async with open_access_server(serve, tmp_path, {"alice": USER, "bob": USER}, limits=limits) as access_server:
        first, *_ = [await opened(nursery, access_server, "alice") for _ in range(3)]
        with pytest.raises(ConnectionRejected) as refused:
            async with connect(access_server, "alice"):
                pass
        assert refused.value.status_code == 503
        assert b"saturated" in (refused.value.body or b"")
        for who in ("bob", *["local"] * 6):
            await opened(nursery, access_server, who)
        await first.aclose()
        with trio.fail_after(SOON):
            while True:
                with suppress(ConnectionRejected):
                    async with connect(access_server, "alice"):
                        break
                await trio.sleep(0.01)


async def test_who_knocks_many_times_at_once_gets_no_more_websockets_than_one_by_one(
    serve: Serve, tmp_path: Path
) -> None:
    answers: list[bytes] = []
    all_answered = trio.Event()

    async def knock(access_server: AccessServer) -> None:
        lines = ["GET /ws HTTP/1.1", "host: localhost", "connection: Upgrade", "upgrade: websocket"]
        lines += ["sec-websocket-version: 13", "sec-websocket-key: a2tra2tra2tra2tra2traw=="]
        lines += [f"authorization: Bearer {access_server.keys['alice']}", "", ""]
        async with await trio.open_tcp_stream("127.0.0.1", access_server.api_server.port) as stream:
            await stream.send_all("\r\n".join(lines).encode())
            answers.append((await stream.receive_some()).split(b" ", 2)[1])
            if len(answers) == 30:
                all_answered.set()
            await all_answered.wait()

    async with open_access_server(
        serve, tmp_path, {"alice": USER}, limits={"websockets_per_subject": 3}
    ) as access_server:
        assert await access_server.status("alice", "GET", "/v1/runs") == 200  # from here on her key is known
        with trio.fail_after(SOON):
            async with trio.open_nursery() as knocking:
                for _ in range(30):
                    knocking.start_soon(knock, access_server)
    assert sorted(answers) == [b"101"] * 3 + [b"503"] * 27


async def opened(nursery: trio.Nursery, access_server: AccessServer, who: str) -> WebSocketConnection:
    """A websocket of this caller's that stays."""
    headers = [(b"authorization", f"Bearer {access_server.keys[who]}".encode())]
    return await connect_websocket_url(
        nursery, f"ws://127.0.0.1:{access_server.api_server.port}/ws", extra_headers=headers
    )


def limiter_of(**limits: int) -> ConnectionLimiter:
    settings = ApiSettings(limits=ApiLimits(**limits), trusted_proxies=("192.0.2.0/24",))
    return ConnectionLimiter(lambda: settings)


async def test_an_address_has_only_so_many_connections_and_a_proxy_and_this_machine_more() -> None:
    limiter = limiter_of(connections_per_address=2, max_connections=7)
    with Entered() as enter:
        assert [enter(limiter, PEER) for _ in range(3)] == [True, True, False]
        assert [enter(limiter, f"2001:db8::{number}") for number in range(3)] == [True, True, False]
        assert [enter(limiter, "192.0.2.1") for _ in range(2)] == [True, True]
        assert [enter(limiter, "127.0.0.1") for _ in range(2)] == [True, False], "all together are bounded as well"
    assert limiter.open == 0
    assert not limiter._from


class Entered:
    """Enters, and leaves all at the end."""

    def __enter__(self) -> Self:
        self._entered: list[Any] = []
        return self

    def __call__(self, limiter: ConnectionLimiter, peer: str) -> bool:
        entering = limiter.entering(peer)
        self._entered.append(entering)
        return bool(entering.__enter__())

    def __exit__(self, *_: object) -> None:
        for entering in self._entered:
            entering.__exit__(None, None, None)


async def test_connections_leave_file_descriptors_to_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (600, 600))
    limiter = limiter_of(max_connections=10_000)
    with Entered() as enter:
        assert sum(enter(limiter, "127.0.0.1") for _ in range(600)) == 600 - 256


async def test_who_is_one_too_many_is_hung_up_on_and_comes_in_when_another_has_left(
    serve: Serve, tmp_path: Path
) -> None:
    async with open_access_server(serve, tmp_path, {"alice": USER}, limits={"max_connections": 5}) as access_server:
        port = access_server.api_server.port
        silent = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(9)]
        with trio.fail_after(SOON):
            while not await hung_up(port):
                await trio.sleep(0.01)
            for stream in silent:
                await stream.aclose()
            while await hung_up(port):
                await trio.sleep(0.01)
        assert await access_server.status("alice", "GET", "/v1/runs") == 200


async def hung_up(port: int) -> bool:
    """Whether a connection is closed without a word."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        try:
            await stream.send_all(b"GET /healthz/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
            return not await stream.receive_some()
        except trio.BrokenResourceError:
            return True


async def test_unknown_signers_are_looked_for_by_few_at_a_time() -> None:
    signer = Signer()
    jwt = Jwt(issuer=ISSUER, audience=AUDIENCE, jwks_url="http://127.0.0.1:9/jwks.json")
    access = AccessControl(ApiSettings(auth=Auth(jwt=jwt)), local_token=LOCAL_TOKEN, loopback=False, environ={})
    assert access._signed is not None
    looking = 0
    most = 0

    async def fetch_for(_: str) -> None:
        nonlocal looking, most
        looking += 1
        most = max(most, looking)
        try:
            await trio.sleep_forever()
        finally:
            looking -= 1

    access._signed.keys.fetch_for = fetch_for  # type: ignore[method-assign] - a slow one
    ends: list[str] = []

    async def come(number: int) -> None:
        try:
            await access.authenticate(
                {**HOST, "authorization": f"Bearer {signer.token()}"}, f"198.51.100.{number % 250}"
            )
        except Saturated as error:
            ends.append(error.code)

    async with trio.open_nursery() as nursery:
        for number in range(200):
            nursery.start_soon(come, number)
        await until(lambda: len(ends) >= 200 - access_module.LOGINS_IN_LINE)
        nursery.cancel_scope.cancel()
    assert most <= access_module.LOGINS_IN_LINE
