"""Download and installation of a newer price table."""

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
from .genai_prices import LARGEST, URL, read
from .price_lookup import keep, vendored
from .table import PriceTable

TIMEOUT = 60.0
"""Time limit of a download in seconds."""


class PriceUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an update: the table, and the file that contains it."""

    table: PriceTable
    file: Path


async def update(source: str, environ: Mapping[str, str], *, today: date) -> PriceUpdate:
    """Read a price file, validate it, and install it as the updated table. Files are read and written in a thread.

    Args:
        source: path or http(s) URL of genai-prices' file or Loki's `models.yaml`; "" for genai-prices' own URL.
        today: day of the update.

    Raises:
        ConfigError: the file is unreadable or not a price file; the old table is unchanged.
        UpstreamError: the download failed.
    """
    source = source or URL
    if source.startswith(("http://", "https://")):
        data = await _fetched(source, environ)
    else:
        data = await trio.to_thread.run_sync(_contents, source)
    table = await trio.to_thread.run_sync(_read, data, source, today)
    return PriceUpdate(table=table, file=await trio.to_thread.run_sync(keep, table, environ))


def _read(data: bytes, source: str, today: date) -> PriceTable:
    if not models_yaml.is_yaml(data):
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
        async for piece in response.aiter_raw():  # raw: a small compressed answer must not decompress to a huge one
            body += piece
            if len(body) > LARGEST:
                break  # `read` raises the error
        return bytes(body)
