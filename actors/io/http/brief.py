"""One request to a service that gives out credentials, in a few lines: tokens, roles. It keeps no connection."""

from __future__ import annotations

from collections.abc import Mapping

import httpx
import msgspec

from ....protocol.errors import CredentialsError, UpstreamError
from .transport import TrioTransport

MOST = 64 * 1024
"""Bytes of an answer."""


class Brief(msgspec.Struct, frozen=True):
    """An answer, whatever its status."""

    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def said(self) -> str:
        """The beginning of the body, for errors."""
        return self.body[:200].decode("utf-8", errors="replace").strip() or "no explanation"


async def brief(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes = b"",
    *,
    environ: Mapping[str, str],
    timeout: float,
    proxy: str = "",
    transport: TrioTransport | None = None,
) -> Brief:
    """The answer to one request. Redirects are not followed.

    Args:
        environ: for proxies and certificates.
        timeout: seconds for the connection, and for each wait after it.
        proxy: URL, `-` for none at all, empty for what the environment says.
        transport: what it goes through, in place of one of that environment and proxy; closed afterwards.

    Raises:
        CredentialsError: the answer is longer than `MOST`: something else is there.
        UpstreamError: there is none; without a status.
    """
    transport = transport or TrioTransport(environ=environ, proxy=proxy)
    timeouts = {"connect": timeout, "read": timeout, "write": timeout, "pool": None}
    where = url
    try:
        place = httpx.URL(url)
        where = place.host
        fields = {"host": place.netloc.decode("ascii"), **headers}
        fields = {"accept": "*/*", "content-length": str(len(body))} | {k.lower(): v for k, v in fields.items()}
        head = [(name.encode("ascii"), value.encode("latin-1")) for name, value in fields.items()]
        response = await transport.send(method, place, head, body, timeouts)
        read = bytearray()
        async for piece in response.aiter_raw():
            read += piece
            if len(read) > MOST:
                raise CredentialsError(f"{where}: its answer is longer than {MOST} bytes")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UpstreamError(f"{where}: {str(error) or type(error).__name__}") from error
    finally:
        transport.connections.close()
    return Brief(response.status_code, response.headers, bytes(read))
