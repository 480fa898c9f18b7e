"""Single small requests to services for tokens and roles, without connection reuse."""

from __future__ import annotations

from collections.abc import Mapping

import httpx
import msgspec

from ....protocol.errors import CredentialsError, UpstreamError
from ..secret_redaction import hidden_head
from .transport import TrioTransport

MOST = 64 * 1024
"""Maximum bytes of a response."""

SHOWN = 200
"""Maximum characters of a response in an error."""


class SimpleResponse(msgspec.Struct, frozen=True):
    """Response with any status."""

    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def explanation(self) -> str:
        """Beginning of the body, redacted, for errors."""
        return hidden_head(self.body.decode("utf-8", errors="replace").strip(), SHOWN) or "no explanation"


async def simple_request(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes = b"",
    *,
    environ: Mapping[str, str],
    timeout: float,
    proxy: str = "",
    transport: TrioTransport | None = None,
) -> SimpleResponse:
    """Send one request and return the response. Redirects are not followed.

    Args:
        environ: environment for proxies and certificates.
        timeout: seconds for connecting, and for each wait afterwards.
        proxy: URL, `-` for none, empty for the environment's.
        transport: replaces a transport for `environ` and `proxy`; closed afterwards.

    Raises:
        CredentialsError: the response is longer than `MOST`, so it is not from such a service.
        UpstreamError: there is no response; without a status.
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
    return SimpleResponse(response.status_code, response.headers, bytes(read))
