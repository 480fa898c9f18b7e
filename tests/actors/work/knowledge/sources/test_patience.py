"""How long servers may take for one page."""

from __future__ import annotations

import trio
import trio.testing

from callboard.actors.work.knowledge.sources.web import _Patience


async def test_redirects_share_the_seconds_of_a_page(autojump_clock: trio.testing.MockClock) -> None:
    patience, done = _Patience(10.0), []
    began = trio.current_time()
    for seconds in (4, 5, 6, 7):
        with patience.lasting():
            await trio.sleep(seconds)
            done.append(seconds)
    assert (done, trio.current_time() - began) == ([4, 5], 10.0)
