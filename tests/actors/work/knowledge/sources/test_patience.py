"""How long servers may take for one page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
import trio.testing
from support.messages import says

from callboard.actors.work.knowledge.reading.limits import CantRead
from callboard.actors.work.knowledge.sources.found import SourceContext, SourceSettings
from callboard.actors.work.knowledge.sources.web import WebReader


async def test_redirects_share_the_seconds_of_a_page(autojump_clock: trio.testing.MockClock, tmp_path: Path) -> None:
    done: list[int] = []

    async def redirect(_: httpx.Request) -> httpx.Response:
        seconds = 4 + len(done)
        await trio.sleep(seconds)
        done.append(seconds)
        return httpx.Response(302, headers={"location": f"/{seconds}"})

    nobody: Any = None
    context = SourceContext(nobody, tmp_path, SourceSettings(page_seconds=10.0, delay=0.0), {}, None)
    async with WebReader(context) as web:
        await web._client.aclose()
        web._client = httpx.AsyncClient(transport=httpx.MockTransport(redirect))
        began = trio.current_time()
        with pytest.raises(
            CantRead, match=says("work.knowledge.sources.web.WebReader.get.once", host="example.org", page_seconds=10)
        ):
            await web.get("http://example.org/")
    assert (done, trio.current_time() - began) == ([4, 5], 10.0)
