"""Fetches a newer table of prices, and keeps it if it is one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path

import httpx
import msgspec
import trio

from .....protocol.errors import ConfigError, UpstreamError
from ....io.http.transport import TrioTransport
from . import models_yaml
from .kept import keep, vendored
from .source import LARGEST, URL, read
from .table import Table

TIMEOUT = 60.0
"""Seconds in which a file of prices has to be here."""


class Updated(msgspec.Struct, frozen=True, kw_only=True):
    """What an update came to: the table, and the file that it is kept in."""

    table: Table
    file: Path


async def update(source: str, environ: Mapping[str, str], *, today: date) -> Updated:
    """Read a file of prices, check all of it, and have it be the table of the last update.

    Args:
        source: a path or an http(s) URL, of genai-prices' file or of Loki's `models.yaml`; "" for where genai-prices
            publishes its own.

    Raises:
        ConfigError: it can't be read, or is no file of prices; what was kept stays.
        UpstreamError: it can't be fetched.
    """
    source = source or URL
    if source.startswith(("http://", "https://")):
        data = await _fetched(source, environ)
    else:
        data = await trio.to_thread.run_sync(_contents, source)
    table = await trio.to_thread.run_sync(_read, data, source, today)
    return Updated(table=table, file=await trio.to_thread.run_sync(keep, table, environ))


def _read(data: bytes, source: str, today: date) -> Table:
    if not models_yaml.is_meant(data):
        return msgspec.structs.replace(read(data, where=source, today=today), source=source, made=today)
    return models_yaml.laid_over(vendored(), data, where=source, today=today)


def _contents(source: str) -> bytes:
    file = Path(source).expanduser()
    try:
        with file.open("rb") as stream:
            return stream.read(LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"{file} can't be read: {error.strerror}") from error


async def _fetched(url: str, environ: Mapping[str, str]) -> bytes:
    try:
        with trio.fail_after(TIMEOUT):
            return await _body(url, environ)
    except trio.TooSlowError:
        raise UpstreamError(f"{url} was not fetched within {TIMEOUT:g} s") from None
    except httpx.HTTPError as error:
        raise UpstreamError(f"{url} can't be fetched: {str(error) or type(error).__name__}") from error
    except httpx.InvalidURL as error:
        raise ConfigError(f"{url} is no URL: {error}") from error


async def _body(url: str, environ: Mapping[str, str]) -> bytes:
    transport = TrioTransport(environ=environ)
    async with (
        httpx.AsyncClient(transport=transport, timeout=TIMEOUT, follow_redirects=True, trust_env=False) as client,
        client.stream("GET", url, headers={"accept-encoding": "identity"}) as response,
    ):
        if response.status_code != 200:
            raise UpstreamError(f"{url} can't be fetched: HTTP {response.status_code}", status=response.status_code)
        body = bytearray()
        async for piece in response.aiter_raw():  # as it comes: a small reply must not unpack to a huge one
            body += piece
            if len(body) > LARGEST:
                break  # `read` says so
        return bytes(body)
