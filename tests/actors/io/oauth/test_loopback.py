"""The listener for the browser: which answers count, and what is left of it afterwards."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import outcome
import pytest
import trio
import trio.testing
from support.auth_server import LocalAuthServer, visit
from support.messages import says

from callboard.actors.io.oauth.authorization import (
    LOOPBACK,
    MOST_AT_ONCE,
    REQUEST_WITHIN,
    Authorization,
    Redirect,
    authorization,
    listening,
)
from callboard.protocol.errors import CallboardError, ConfigError, NobodyToAsk, OAuthRefused

Person = Callable[[Authorization], Awaitable[None]]


async def played(server: LocalAuthServer, person: Person, redirect_uri: str = LOOPBACK, **changes: object) -> str:
    """The code that a sign-in ends with; its port is free afterwards, however it ends."""
    async with listening(redirect_uri) as redirect:
        request = authorization(server.client(**changes), redirect.uri)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(person, request)
            try:
                found = outcome.Value(await redirect.answer(request))
            except CallboardError as error:
                found = outcome.Error(error)
            nursery.cancel_scope.cancel()
        assert not is_open(redirect)
        return found.unwrap()


def is_open(redirect: Redirect) -> bool:
    parts = urlsplit(redirect.uri)
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", parts.port or 0)) == 0


async def test_the_code_comes_back_and_the_browser_is_told(server: LocalAuthServer) -> None:
    pages: list[bytes] = []

    async def says_yes(request: Authorization) -> None:
        with trio.move_on_after(10, shield=True):
            pages.append(await server.browser(request.url))

    assert (await played(server, says_yes)).startswith("s3cret-code")
    head, _, body = pages[0].partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"cache-control: no-store" in head
    assert b"content-security-policy: default-src 'none'" in head
    assert b"You can close this page" in body
    assert b"s3cret" not in pages[0]


async def test_a_no_and_an_error_are_shown_and_raised(server: LocalAuthServer) -> None:
    pages: list[bytes] = []

    async def says_no(request: Authorization) -> None:
        with trio.move_on_after(10, shield=True):
            pages.append(await server.browser(request.url, error="access_denied"))

    with pytest.raises(OAuthRefused, match="access_denied"):
        await played(server, says_no)
    assert b"The sign-in failed: " in pages[0]


async def test_an_answer_of_another_server_is_refused(server: LocalAuthServer) -> None:
    with pytest.raises(
        OAuthRefused, match=says("io.oauth.authorization.Authorization.code_of.2", issuer="https://other…")
    ):
        await played(server, lambda request: _visit(server.redirect(request.url)), issuer="https://other.example")


async def _visit(url: str) -> None:
    await visit(url)


async def test_what_is_no_answer_to_us_changes_nothing(server: LocalAuthServer) -> None:
    said: list[bytes] = []

    async def many(request: Authorization) -> None:
        base = request.redirect_uri
        origin = base.removesuffix(urlsplit(base).path)
        urls = (f"{base}?code=stolen&state=wrong", f"{base}?code=stolen", f"{origin}/favicon.ico", f"{origin}/")
        said.extend([await visit(url) for url in urls])
        said.append(await visit(f"{base}?code=stolen&state={request.state}", "POST"))
        parts = urlsplit(base)
        for raw in (b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01 tls?\r\n\r\n", b"GET http://x/ HTTP/1.1\r\n\r\n"):
            async with await trio.open_tcp_stream("127.0.0.1", parts.port or 0) as stream:
                await stream.send_all(raw)
                said.append(await stream.receive_some())
        async with await trio.open_tcp_stream("127.0.0.1", parts.port or 0) as stream:
            with pytest.raises(trio.BrokenResourceError):
                await stream.send_all(b"GET / HTTP/1.1\r\nx: " + b"y" * 50_000_000)
        await server.browser(request.url)

    assert (await played(server, many)).startswith("s3cret-code")
    statuses = [each.split(b" ")[1] for each in said]
    assert statuses == [b"400", b"400", b"404", b"404", b"405", b"400", b"400", b"400", b"400"]
    assert b"another sign-in attempt" in said[0]


async def test_silent_connections_do_not_stand_in_the_way(server: LocalAuthServer) -> None:
    """Browsers open some beforehand."""

    async def preconnects(request: Authorization) -> None:
        port = urlsplit(request.redirect_uri).port or 0
        silent = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(5)]
        await server.browser(request.url)
        for stream in silent:
            await stream.aclose()

    assert await played(server, preconnects)


async def test_a_crowd_of_connections_is_held_at_bay(server: LocalAuthServer, clock: trio.testing.MockClock) -> None:
    async def crowds(request: Authorization) -> None:
        port = urlsplit(request.redirect_uri).port or 0
        crowd = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(MOST_AT_ONCE + 8)]
        assert await crowd[-1].receive_some() == b""
        clock.jump(REQUEST_WITHIN)
        await server.browser(request.url)
        for stream in crowd:
            await stream.aclose()

    assert await played(server, crowds)


async def test_a_browser_that_never_comes(server: LocalAuthServer, autojump_clock: trio.testing.MockClock) -> None:
    async with listening(LOOPBACK) as redirect:
        request = authorization(server.client(), redirect.uri)
        with pytest.raises(NobodyToAsk, match=says("io.oauth.authorization.Redirect.answer.2", within=300)) as error:
            await redirect.answer(request)
        assert error.value.exit_code == 5
        assert not is_open(redirect)


async def test_who_gives_up_leaves_no_port_open(server: LocalAuthServer) -> None:
    async with listening(LOOPBACK) as redirect:
        with trio.move_on_after(0.05) as scope:
            await redirect.answer(authorization(server.client(), redirect.uri))
        assert scope.cancelled_caught
        assert not is_open(redirect)


async def test_a_port_that_was_never_asked_for_is_closed_as_well(free_port: int) -> None:
    async with listening(f"http://127.0.0.1:{free_port}/callback") as redirect:
        assert is_open(redirect)
    assert not is_open(redirect)


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"can't listen on port {port} of 127\.0\.0\.1"):
            listening(f"http://127.0.0.1:{port}/callback")


async def test_a_fixed_port_and_path_are_kept(free_port: int) -> None:
    async with listening(f"http://127.0.0.1:{free_port}/a/b") as redirect:
        assert redirect.uri == f"http://127.0.0.1:{free_port}/a/b"


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


async def test_localhost_listens_on_both_addresses(server: LocalAuthServer) -> None:
    async with listening("http://localhost/callback") as redirect:
        parts = urlsplit(redirect.uri)
        assert parts.hostname == "localhost"
        for address in ("127.0.0.1", "::1") if _has_ipv6() else ("127.0.0.1",):
            async with await trio.open_tcp_stream(address, parts.port or 0):
                pass


@pytest.mark.skipif(not _has_ipv6(), reason="this machine has no ::1")
def test_a_program_that_sits_on_the_other_address_does_not_get_the_code() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"port {port} of ::1"):
            listening(f"http://localhost:{port}/callback")


@pytest.mark.parametrize(
    "uri", ["https://127.0.0.1/callback", "http://id.example/callback", "http://127.0.0.1:99999/", "callback", ""]
)
def test_elsewhere_there_is_nothing_to_listen_to(uri: str) -> None:
    with pytest.raises(ConfigError, match=r"the redirect URI (is )?'"):
        listening(uri)
