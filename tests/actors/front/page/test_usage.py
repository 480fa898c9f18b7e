"""What models have cost, on the page in a real browser."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.browser import Browser, Page
from support.page_server import PageServer

from callboard.actors.work.spending.accounts import Amount
from callboard.actors.work.spending.book import BookFile, SpendingBook
from callboard.protocol.chat import TokenUsage
from callboard.protocol.settings.api import ApiLimits, ApiSettings, DailyLimits

LONG = "cellar:meta-llama/Llama-3.3-70B-Instruct-FP8-dynamic"
USED = TokenUsage(input_tokens=1000, cached_tokens=500, output_tokens=100)


@pytest.fixture
async def spent(page_server: PageServer, tmp_path: Path) -> PageServer:
    """A server whose usage of ten days has two models, one without a price, and three callers."""
    days = [0.0]
    book = SpendingBook(
        page_server.root.kernel,
        BookFile(tmp_path / "state" / "callboard" / "usage.db"),
        now=lambda: time.time() - days[0],
    )
    for number in range(10):
        days[0] = 86_400.0 * number
        for key in ("local", "alice", "bob"):
            book.add(key, "writer", "openai:gpt-5", USED, 0.5)
            if number == 3:
                book.add(key, "writer", LONG, USED, None)
    await book.aclose()
    return page_server


async def rows(page: Page) -> list[list[str]]:
    """The table as it is read, without its head."""
    cells = "[...row.cells].map(cell => cell.textContent)"
    found: list[list[str]] = await page.evaluate(
        f"[...document.querySelectorAll('table.usage tbody tr')].map(row => {cells})"
    )
    return found


async def test_it_is_shown_by_model_and_by_what_the_keyboard_chooses_and_a_reload_keeps_that(
    spent: PageServer, browser: Browser
) -> None:
    async with browser.page(spent.page, 1400, 900) as page:
        await page.until("document.body.dataset.connection === 'open'")
        await page.press("u")
        await page.until("document.querySelectorAll('table.usage tbody tr').length === 2")
        assert await rows(page) == [
            ["openai:gpt-5", "30", "30k", "50%", "3.0k", "$15.00"],
            [LONG, "3", "3.0k", "50%", "300", "unpriced"],
        ]
        sums = await page.evaluate("document.querySelector('.sums').innerText")
        assert "$15.00+" in sums
        assert "3 requests unpriced" in sums
        assert await page.evaluate("document.querySelectorAll('.bars .day').length") == 30
        assert await page.evaluate("document.querySelectorAll('.bars .cap').length") == 1
        await page.evaluate("document.querySelector('[name=usage-by]:checked').focus()")
        await page.press("ArrowRight", "ArrowRight")
        await page.until("document.querySelectorAll('table.usage tbody tr').length === 3")
        assert [row[0] for row in await rows(page)] == ["alice", "bob", "local"]
        await page.press("Tab", "ArrowLeft")
        await page.until("document.querySelectorAll('.bars .day').length === 7")
        assert await page.evaluate("location.hash") == "#/usage/key/7"
        await page.reload()
        await page.until("document.querySelectorAll('.bars .day').length === 7")
        assert [row[0] for row in await rows(page)] == ["alice", "bob", "local"]
        assert page.problems == []


async def test_a_day_says_what_it_has_cost_when_it_is_pointed_at(spent: PageServer, browser: Browser) -> None:
    async with browser.page(spent.page, 1400, 900) as page:
        await page.evaluate("location.hash = '#/usage/day/7'")
        await page.until("document.querySelectorAll('table.usage tbody tr').length === 7")
        days = [row[0] for row in await rows(page)]
        assert days == sorted(days, reverse=True)
        caption = "document.querySelector('figcaption').firstChild.textContent"
        assert (await page.evaluate(caption)).startswith("Cost by day, ")
        await page.click(".bars .day[data-place='3']")
        await page.until(f"{caption}.endsWith('$1.50+, 6 requests, 3 unpriced, 6.0k in (50% cached), 600 out')")
        assert page.problems == []


@pytest.mark.parametrize("width", [400, pytest.param(1400, marks=pytest.mark.soak)])
async def test_nothing_is_wider_than_the_screen(spent: PageServer, browser: Browser, width: int) -> None:
    async with browser.page(spent.page, width, 900) as page:
        for by in ("day", "model", "agent", "key"):
            await page.evaluate(f"location.hash = '#/usage/{by}/90'")
            await page.until(f"document.querySelector('table.usage thead th')?.textContent.toLowerCase() === '{by}'")
            wide = "[document.documentElement, document.querySelector('main')].map(each => each.scrollWidth)"
            assert max(await page.evaluate(wide)) <= width
        assert page.problems == []


async def test_limits_of_today_are_shown_where_there_are_some(page_server: PageServer, browser: Browser) -> None:
    days = page_server.root.days
    assert days is not None
    days.configure(
        ApiSettings(limits=ApiLimits(per_subject_daily=DailyLimits(max_cost=2), daily=DailyLimits(max_cost=9)))
    )
    account = days.account("alice")
    assert account is not None
    (await account.admit(account, Amount(1, 0.1), lambda: None, turn=True)).spend(Amount(1, 2.5))
    async with browser.page(page_server.page, 400, 900) as page:
        await page.evaluate("location.hash = '#/usage'")
        await page.until("document.querySelectorAll('.limits li').length === 2")
        lines = "[...document.querySelectorAll('.limits li')].map(line => line.textContent)"
        assert await page.evaluate(lines) == [
            "All together$2.50 of $9.00 today",
            "alice$2.50 of $2.00 today: no more until 00:00 UTC",
        ]
        assert (
            await page.evaluate("document.querySelector('.limits [data-over] .spent').getAttribute('width')") == "100"
        )
        assert page.problems == []


async def test_a_book_without_rows_and_one_that_can_not_be_read_are_told(
    page_server: PageServer, browser: Browser, tmp_path: Path
) -> None:
    async with browser.page(page_server.page, 400, 900) as page:
        await page.click("a[href='#/usage']")
        await page.until(
            "document.querySelector('.empty').textContent.startsWith('Nothing was spent on models since ')"
        )
        (tmp_path / "state" / "callboard" / "usage.db").write_text("this is no database, whoever reads it" * 100)
        await page.click("input[value='7']")
        await page.until("document.querySelector('.empty').textContent.includes('file is not a database')")
        assert await page.evaluate("document.querySelector('table.usage').closest('[hidden]') !== null")
        assert page.problems == []
