"""What expires: who asks for it anew, when, and how often."""

from __future__ import annotations

import pytest
import trio

from callboard.actors.work.models.refreshing_credential import PAUSE, RefreshingCredential
from callboard.protocol.errors import CredentialsError, UpstreamError


class Source:
    """Gives out 1, 2, 3 ..., each good for `life` seconds."""

    def __init__(self, life: float = 3600.0) -> None:
        self.now = 0.0
        self.given = 0
        self.life = life
        self.error: Exception | None = None
        self.renewed = RefreshingCredential(self.ask, early=300.0, clock=lambda: self.now)

    async def ask(self) -> tuple[int, float]:
        await trio.sleep(0.01)
        if self.error is not None:
            raise self.error
        self.given += 1
        return self.given, self.now + self.life


async def test_fifty_who_find_it_old_ask_once() -> None:
    source = Source()
    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(source.renewed.renew)
    assert (source.given, source.renewed.current) == (1, 1)
    source.now = 3301.0
    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(source.renewed.renew)
    assert source.given == 2


async def test_one_that_lives_shortly_is_not_asked_for_at_each_request() -> None:
    source = Source(life=60.0)
    for source.now, given in ((0.0, 1), (10.0, 1), (29.0, 1), (31.0, 2), (40.0, 2)):
        await source.renewed.renew()
        assert source.given == given


async def test_one_that_was_refused_is_asked_for_anew_once() -> None:
    source = Source()
    await source.renewed.renew()
    first = source.renewed.current
    for _ in range(50):  # as many requests were under way with it
        assert first is not None
        source.renewed.refused(first)
        await source.renewed.renew()
    assert source.given == 2


async def test_who_is_cancelled_while_asking_leaves_it_to_the_next() -> None:
    source = Source()
    with trio.move_on_after(0.001):
        await source.renewed.renew()
    await source.renewed.renew()
    assert source.given == 1


async def test_where_renewal_fails_the_old_one_is_used_to_its_end() -> None:
    source = Source()
    await source.renewed.renew()
    source.now, source.error = 3400.0, UpstreamError("broken")
    await source.renewed.renew()
    source.now = 3600.0
    for _ in range(2):
        with pytest.raises(UpstreamError, match="broken"):
            await source.renewed.renew()
    source.error = CredentialsError("revoked")
    with pytest.raises(UpstreamError, match="broken"):  # it does not ask again so soon
        await source.renewed.renew()
    source.now += PAUSE
    with pytest.raises(CredentialsError, match="revoked"):
        await source.renewed.renew()
    source.error, source.now = None, source.now + PAUSE
    await source.renewed.renew()
    assert source.renewed.current == 2
