"""TLS is checked; proxies are tunnelled through or handed whole requests."""

from __future__ import annotations

import base64
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from support.messages import says

from callboard.actors.io.http.transport import TrioTransport

Serve = Callable[..., int]
Read = Callable[..., Awaitable[bytes]]
Counting = Callable[..., Any]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def client(transport: TrioTransport) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=transport, timeout=60.0)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate for models.test, in one file."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=models.test", "-addext", "subjectAltName=DNS:models.test,IP:127.0.0.1"]
    subprocess.run(
        [*command, *names, "-keyout", path, "-out", path.with_suffix(".crt")], check=True, capture_output=True
    )
    path.write_bytes(path.read_bytes() + path.with_suffix(".crt").read_bytes())
    return path


@pytest.fixture
def server_tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


async def test_tls_is_checked_and_its_connections_are_kept(
    serve: Serve, counting: Counting, certificate: Path, server_tls: ssl.SSLContext
) -> None:
    server = counting()
    port = serve(server, tls=server_tls)
    async with client(TrioTransport(environ={"SSL_CERT_FILE": str(certificate)})) as http:
        for _ in range(3):
            assert (await http.get(f"https://127.0.0.1:{port}/")).text == "ok"
    assert server.accepted == 1


async def test_a_certificate_nobody_vouches_for_is_refused(
    serve: Serve, counting: Counting, server_tls: ssl.SSLContext
) -> None:
    port = serve(counting(), tls=server_tls)
    async with client(TrioTransport()) as http:
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await http.get(f"https://127.0.0.1:{port}/")


async def test_http1_is_agreed_on_with_a_server_that_prefers_h2(
    serve: Serve, read_request: Read, certificate: Path, server_tls: ssl.SSLContext
) -> None:
    agreed = []

    async def handler(stream: trio.SSLStream[trio.SocketStream]) -> None:
        agreed.append(stream.selected_alpn_protocol())
        await read_request(stream)
        await stream.send_all(OK)

    port = serve(handler, tls=server_tls)
    async with client(TrioTransport(environ={"SSL_CERT_FILE": str(certificate)})) as http:
        await http.get(f"https://127.0.0.1:{port}/")
    assert agreed == ["http/1.1"]


async def test_a_tls_wire_is_closed_by_cancellation_too(
    serve: Serve, read_request: Read, certificate: Path, server_tls: ssl.SSLContext
) -> None:
    busy, gone = trio.Event(), trio.Event()

    async def handler(stream: trio.abc.Stream) -> None:
        await read_request(stream)
        busy.set()
        assert not await stream.receive_some()
        gone.set()

    port = serve(handler, tls=server_tls)
    async with client(TrioTransport(environ={"SSL_CERT_FILE": str(certificate)})) as http:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(http.get, f"https://127.0.0.1:{port}/")
            await busy.wait()
            nursery.cancel_scope.cancel()
        await gone.wait()


def tunnel_to(
    port: int, read_request: Read, heads: list[bytes], answer: bytes = b"HTTP/1.1 200 Connected\r\n\r\n"
) -> Callable[[trio.abc.Stream], Awaitable[None]]:
    """A proxy that connects every tunnel to one local port."""

    async def handler(stream: trio.abc.Stream) -> None:
        heads.append(await read_request(stream))
        await stream.send_all(answer)
        if b" 200 " not in answer:
            return
        async with await trio.open_tcp_stream("127.0.0.1", port) as onward, trio.open_nursery() as nursery:

            async def copy(source: trio.abc.Stream, sink: trio.abc.Stream) -> None:
                while data := await source.receive_some():
                    await sink.send_all(data)
                nursery.cancel_scope.cancel()

            nursery.start_soon(copy, stream, onward)
            nursery.start_soon(copy, onward, stream)

    return handler


@pytest.mark.parametrize("proxy_tls", [False, True])
async def test_https_goes_through_a_tunnel(
    serve: Serve, counting: Counting, read_request: Read, certificate: Path, server_tls: ssl.SSLContext, proxy_tls: bool
) -> None:
    server = counting()
    heads: list[bytes] = []
    proxy = serve(tunnel_to(serve(server, tls=server_tls), read_request, heads), tls=server_tls if proxy_tls else None)
    scheme = "https" if proxy_tls else "http"
    environ = {"HTTPS_PROXY": f"{scheme}://me:pa%20ss@127.0.0.1:{proxy}", "SSL_CERT_FILE": str(certificate)}
    async with client(TrioTransport(environ=environ)) as http:
        for _ in range(2):
            assert (await http.get("https://models.test/v1")).text == "ok"
    assert len(heads) == 1
    assert heads[0].startswith(b"CONNECT models.test:443 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic " + base64.b64encode(b"me:pa ss") in heads[0]


async def test_a_proxy_that_refuses_is_named(serve: Serve, read_request: Read) -> None:
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    proxy = serve(tunnel_to(0, read_request, [], refusal))
    async with client(TrioTransport(environ={"HTTPS_PROXY": f"http://127.0.0.1:{proxy}"})) as http:
        with pytest.raises(
            httpx.ProxyError, match=says("io.http.transport._tunnel.2", decode="models.test:443", status=407)
        ):
            await http.get("https://models.test/")


async def test_plain_http_is_handed_to_the_proxy_whole(serve: Serve, read_request: Read) -> None:
    heads = []

    async def handler(stream: trio.abc.Stream) -> None:
        heads.append(await read_request(stream))
        await stream.send_all(OK)

    proxy = serve(handler)
    async with client(TrioTransport(environ={"HTTP_PROXY": f"http://u:p@127.0.0.1:{proxy}"})) as http:
        assert (await http.get("http://models.test/a?b=c")).text == "ok"
    assert heads[0].startswith(b"GET http://models.test/a?b=c HTTP/1.1\r\nHost: models.test\r\n")
    assert b"Proxy-Authorization: Basic dTpw" in heads[0]
