"""The page in a real browser, against a server that does what real runs do only when they like."""

from __future__ import annotations

import pytest
import trio
from support import page_frames as frames
from support.browser import Browser, Page
from support.page_scripted import Scripted
from support.waiting import until

SAID = "document.querySelector('.said')?.textContent"


@pytest.fixture
async def scripted(nursery: trio.Nursery) -> Scripted:
    server = Scripted()
    nursery.start_soon(server.serve)
    return server


async def put(server: Scripted, run: str, *events: frames.Json, **fields: frames.Json) -> None:
    server.info[run] = frames.info(run, **fields)
    server.actors.setdefault(run, [{"path": f"/{run}", "parent": "", "name": run, "kind": "run"}])
    await server.tell(run, *events)


async def go(page: Page, place: str) -> None:
    await page.evaluate(f"location.hash = '#/{place}'")


async def called(server: Scripted, method: str, times: int = 0) -> list[frames.Json]:
    """With what the page has called it, once it has so many times: what is on its way may be shown already."""

    def calls() -> list[frames.Json]:
        return [params for name, params in server.calls if name == method]

    await until(lambda: len(calls()) >= times)
    return calls()


@pytest.mark.soak
async def test_a_thousand_agents_are_a_tree_of_few_elements_that_the_keyboard_walks(
    scripted: Scripted, browser: Browser
) -> None:
    await put(scripted, "run-1", *frames.crowd("run-1", 1000))
    async with browser.page(scripted.url) as page:
        await go(page, "run/run-1")
        await page.until("document.querySelector('.actors .sum').textContent === '1003 of 1003 live'")
        assert await page.evaluate("document.querySelectorAll('[role=treeitem]').length") < 80
        assert await page.evaluate("document.querySelectorAll('*').length") < 3000
        await page.evaluate("document.querySelector('[role=tree]').focus()")
        await page.press("End")
        await page.until("document.querySelector('.actor.current .name').textContent === 'child_0999'")
        pointed = "document.getElementById(document.activeElement.getAttribute('aria-activedescendant'))"
        await page.until(f"{pointed}.dataset.path === '/run-1/lead/children/child_0999'")
        await page.press("ArrowLeft")
        await page.until("document.querySelector('.actor.current .name').textContent === 'children'")
        await page.press("ArrowLeft")
        await page.until("document.querySelectorAll('[role=treeitem]').length === 3")
        assert await page.evaluate("document.querySelector('.actor.current').getAttribute('aria-expanded')") == "false"
        await page.press("ArrowRight", "/")
        await page.type("child_07")
        await page.until("document.querySelectorAll('[role=treeitem]').length > 3")
        await page.press("Enter")
        assert await page.evaluate("document.activeElement.getAttribute('role')") == "tree"
        await page.press("ArrowDown", "c")
        await page.until("document.querySelector('dialog h2')?.textContent === 'Cancel child_0700?'")
        await page.press("Enter")  # "let it work" has the focus
        await page.until("!document.querySelector('dialog')")
        assert not await called(scripted, "_actor/cancel")
        await page.press("p", "i")
        await page.until("document.querySelector('dialog.inspect dl')")
        assert await called(scripted, "_actor/pause", 1) == [{"path": "/run-1/lead/children/child_0700"}]
        assert page.problems == []


@pytest.mark.parametrize(("number", "seconds"), [(10_000, 300), pytest.param(100_000, 1_200, marks=pytest.mark.soak)])
async def test_many_events_are_few_elements_and_none_is_missing(
    scripted: Scripted, browser: Browser, number: int, seconds: float
) -> None:
    lines = [frames.event("run-1", "tool.call.delta", "lead", id="c", tool="t", text=f"line {n}") for n in range(50)]
    steps = [
        frames.event("run-1", "tool.call.started", "lead", id="c", tool="t"),
        *lines,
        frames.event("run-1", "tool.call.finished", "lead", id="c", tool="t", seconds=1.0),
        *(frames.event("run-1", "state.patch", "lead", keys=[f"key{n}"]) for n in range(48)),
    ]
    await put(scripted, "run-1", *frames.opening("run-1"), *(steps * (number // 100)))
    async with browser.page(scripted.url) as page:
        await go(page, "run/run-1")
        short = f"{number // 1000}k"
        await page.until(f"document.querySelector('.events .sum').textContent.startsWith('{short}')", seconds)
        assert await page.evaluate("document.querySelectorAll('*').length") < 6000
        assert await page.evaluate("document.querySelectorAll('.event').length") < 120
        last = "[...document.querySelectorAll('.event .seq')].at(-1).textContent"
        await page.until(f"{last} === '{number + 5}'", seconds)
        await page.evaluate("document.querySelector('.events input').focus()")
        await page.type("tool.call.finished")
        await page.until("document.querySelector('.events .sum').textContent.endsWith('rows fit')", seconds)
        assert page.problems == []


async def test_a_connection_that_breaks_and_a_reader_that_lags_lose_nothing_and_show_nothing_twice(
    scripted: Scripted, browser: Browser
) -> None:
    scripted.lag_at = 7
    await put(scripted, "run-1", *frames.opening("run-1"), *(frames.delta("run-1", f"{n} ") for n in range(5)))
    async with browser.page(scripted.url) as page:
        await go(page, "run/run-1")
        await page.until(f"{SAID} === '0 1 2 3 4 '")
        afters = [params["after"] for params in await called(scripted, "_run/subscribe")]
        assert (afters[0], afters[-1]) == (0, 7)
        await scripted.cut()
        await scripted.tell("run-1", *(frames.delta("run-1", f"{n} ") for n in range(5, 9)))
        await page.until(f"{SAID} === '0 1 2 3 4 5 6 7 8 '")
        assert (await called(scripted, "_run/subscribe"))[-1] == {"run": "run-1", "after": 10}
        assert await page.evaluate("document.querySelectorAll('.said').length") == 1


async def test_what_is_wrong_with_the_connection_is_said_with_what_to_do(scripted: Scripted, browser: Browser) -> None:
    address = scripted.url.partition("#")[0]
    async with browser.page(address) as page:
        await page.until("document.querySelector('.gate h2').textContent === 'This page needs a token'")
        assert scripted.sockets == set()
        await page.click(".gate input")
        await page.type("mistyped")
        await page.press("Enter")
        await page.until("document.querySelector('.gate h2').textContent === 'The server does not let this page in'")
        await page.click(".gate input")
        await page.type(scripted.token)
        await page.press("Enter")
        await page.until("document.querySelector('.gate').hidden && document.body.dataset.connection === 'open'")
        scripted.away = True
        await scripted.cut()
        await page.until("document.querySelector('.gate h2').textContent === 'The connection is lost'")
        scripted.away = False
        await page.until("document.body.dataset.connection === 'open'")  # by itself
        assert scripted.token not in await page.evaluate("location.href + document.body.innerHTML")


async def test_a_run_that_nobody_knows_is_said_to_be_none(scripted: Scripted, browser: Browser) -> None:
    async with browser.page(scripted.url) as page:
        await go(page, "run/run-0")
        await page.until("document.querySelector('.empty h1')?.textContent === 'There is no such run'")
        await page.click(".empty a")
        await page.until("document.querySelector('.list')")
        assert page.problems == []


async def test_each_of_many_questions_is_answered_on_its_own_and_one_answered_elsewhere_is_closed(
    scripted: Scripted, browser: Browser
) -> None:
    scripted.answers["_question/answer"] = {"answered": True}
    await put(
        scripted,
        "run-1",
        *frames.opening("run-1"),
        frames.asked("run-1", "q-choice", "choice", "Send it?", options=["now", "later"], free=True),
        frames.asked("run-1", "q-secret", "text", "Password?", secret=True),
        frames.asked("run-1", "q-boxes", "checkbox", "Which?", options=["a", "b", "c"]),
        frames.asked("run-1", "q-confirm", "confirm", "Sure?", timeout=1e9),
        frames.asked("run-1", "q-other", "text", "Elsewhere?"),
    )
    async with browser.page(scripted.url, 1600, 1400) as page:
        await go(page, "run/run-1")
        await page.until("document.querySelectorAll('.question[data-question]').length === 5")

        def card(id: str) -> str:
            return f".question[data-question={id}]"

        await page.click(f"{card('q-boxes')} label:nth-child(1)")
        await page.click(f"{card('q-boxes')} label:nth-child(3)")
        await page.click(f"{card('q-boxes')} .primary")
        await page.click(f"{card('q-secret')} input")
        assert await page.evaluate(f"document.querySelector('{card('q-secret')} input').type") == "password"
        await page.type("hush")
        await page.press("Enter")
        await page.click(f"{card('q-confirm')} button:nth-child(2)")
        await page.click(f"{card('q-choice')} textarea")
        await page.type("in an hour")
        await page.press("Enter")
        await page.until("document.querySelectorAll('.question[data-question] :enabled').length === 2")
        given = {each["question"]: each["value"] for each in await called(scripted, "_question/answer", 4)}
        assert given == {"q-boxes": ["a", "c"], "q-secret": "hush", "q-confirm": "no", "q-choice": "in an hour"}
        await scripted.tell(
            "run-1", frames.event("run-1", "question.answered", "lead", id="q-other", value="yes", by="terminal")
        )
        await page.until(
            f"document.querySelector('{card('q-other')} header').textContent.includes('answered by terminal')"
        )
        assert page.problems == []


async def test_a_tool_that_wants_to_change_a_file_shows_the_diff_line_by_line(
    scripted: Scripted, browser: Browser
) -> None:
    diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-<b>old</b>\n+new"
    text = f"Allow fs_write?\npath: x\n{diff}"
    more = {"permission": "fs_write", "options": ["yes", "no"], "diff": diff}
    await put(scripted, "run-1", *frames.opening("run-1"), frames.asked("run-1", "q-1", "choice", text, **more))
    async with browser.page(scripted.url) as page:
        await go(page, "run/run-1")
        await page.until("document.querySelector('.questions .diff')")
        words = "document.querySelector('.questions .asked').textContent"
        assert await page.evaluate(words) == "Allow fs_write?\npath: x"
        lines = "[...document.querySelectorAll('.questions .diff span')].map((each) => each.dataset.line).join()"
        assert await page.evaluate(lines) == "head,head,hunk,removed,added"
        removed = "document.querySelector('.questions [data-line=removed]').textContent"
        assert await page.evaluate(removed) == "-<b>old</b>\n"
        assert page.problems == []


async def test_a_run_of_another_process_is_watched_and_says_that_it_can_not_be_steered_from_here(
    scripted: Scripted, browser: Browser
) -> None:
    scripted.actors["run-1"] = []  # it is under way, and nobody here plays it
    asked = frames.asked("run-1", "q-1", "confirm", "Sure?")
    await put(scripted, "run-1", *frames.opening("run-1"), asked)
    async with browser.page(scripted.url) as page:
        await go(page, "run/run-1")
        await page.until("document.querySelector('.elsewhere:not([hidden])')?.textContent.includes('another process')")
        assert await page.evaluate("document.querySelector('.head button:not(.to-steps)').hidden")
        assert await page.evaluate("document.querySelectorAll('.question :enabled').length") == 0
        await scripted.tell("run-1", frames.delta("run-1", "It goes on."))
        await page.until(f"{SAID} === 'It goes on.'")
        assert page.problems == []


async def test_the_keyboard_leads_everywhere_and_its_keys_are_listed(scripted: Scripted, browser: Browser) -> None:
    asked = frames.asked("run-1", "q-1", "confirm", "Sure?")
    await put(scripted, "run-1", *frames.opening("run-1"), asked)
    focused = "document.activeElement"
    async with browser.page(scripted.url, 1600, 1000) as page:
        await page.until("document.querySelector('.runs tbody tr')")
        await page.press("?")
        await page.until("document.querySelector('dialog.shortcuts kbd')")
        await page.press("Escape")
        await page.until("!document.querySelector('dialog')")
        await go(page, "run/run-1")
        await page.until("document.querySelector('.question')")
        for key, found in {"a": ".question button", "t": "[role=tree]", "g": ".canvas", "e": ".log"}.items():
            await page.press(key)
            await page.until(f"{focused}.matches('{found}')")
        await page.press("n")
        await page.until("location.hash === '#/start'")
        await page.until(f"{focused}.name === 'target'")
        await page.press("r")  # which is text there
        assert await page.evaluate(f"{focused}.value") == "r"
        assert page.problems == []


async def test_a_screen_reader_is_told_whole_messages_and_nothing_of_the_past(
    scripted: Scripted, browser: Browser
) -> None:
    def said(text: str) -> list[frames.Json]:
        return [
            frames.event("run-1", "llm.request", "lead", id=text, model="m"),
            frames.event("run-1", "llm.delta", "lead", id=text, text=text),
            frames.event("run-1", "llm.response", "lead", id=text, model="m", text=text),
        ]

    aloud = "document.querySelector('.aloud')?.textContent"
    await put(scripted, "run-1", *frames.opening("run-1"), *said("Long ago."))
    async with browser.page(scripted.url) as page:
        await go(page, "run/run-1")
        await page.until("[...document.querySelectorAll('.said')].at(-1)?.textContent === 'Long ago.'")
        assert await page.evaluate(aloud) == ""
        first, *rest = said("Just now.")
        await scripted.tell("run-1", first)
        await page.until("[...document.querySelectorAll('.block[data-open]')].length === 2")
        await scripted.tell("run-1", *rest)
        await page.until(f"{aloud} === 'lead: Just now.'")
        assert await page.evaluate("getComputedStyle(document.querySelector('.said')).unicodeBidi") == "plaintext"


async def test_an_agent_is_sent_a_message(scripted: Scripted, browser: Browser) -> None:
    await put(scripted, "run-1", *frames.opening("run-1"))
    async with browser.page(scripted.url) as page:
        await go(page, "run/run-1")
        await page.click(".actor[data-path='/run-1/lead']")
        await page.click(".message textarea")
        await page.type("be brief")
        await page.press("Enter")
        await page.until("document.querySelector('.toast')?.textContent.startsWith('Sent')")
        assert await called(scripted, "_actor/send", 1) == [{"path": "/run-1/lead", "text": "be brief"}]


async def test_it_is_light_or_dark_as_the_system_says_or_as_is_chosen(scripted: Scripted, browser: Browser) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    async with browser.page(scripted.url) as page:
        await page.scheme("light")
        light = await page.until(f"document.querySelector('.theme') && {paper}")
        await page.scheme("dark")
        await page.until(f"{paper} !== '{light}'")
        await page.click(".theme")
        await page.until(f"{paper} === '{light}' && document.querySelector('.theme').textContent === '○ Light'")
        await page.reload()
        await page.until(f"{paper} === '{light}' && document.querySelector('.theme')?.textContent === '○ Light'")


async def test_the_prompts_that_an_agent_suggests_fill_the_field(scripted: Scripted, browser: Browser) -> None:
    scripted.targets = [
        {"name": "clerk", "dialect": "agent", "problem": "", "conversation_starters": ["How long?", "How much?"]},
        {"name": "mute", "dialect": "agent", "problem": ""},
    ]
    async with browser.page(scripted.url) as page:
        await go(page, "start")
        await page.until("document.querySelectorAll('.pick').length === 2")
        await page.click(".pick[data-name=clerk]")
        await page.until("document.querySelectorAll('.starters button').length === 2")
        await page.click(".starters button:last-child")
        await page.until("document.querySelector('textarea[name=prompt]').value === 'How much?'")
        await page.click(".pick[data-name=mute]")
        await page.until("document.querySelector('.starters').hidden")
        assert page.problems == []


async def test_nothing_is_wider_than_a_narrow_screen(scripted: Scripted, browser: Browser) -> None:
    long = "a-name-without-any-place-to-break-it-" * 5
    scripted.targets = [
        {"name": long, "dialect": "graph", "description": long, "problem": "", "conversation_starters": [long]}
    ]
    text = frames.delta("run-1", long * 5)
    question = frames.asked("run-1", "q", "choice", long, options=[long, "b"])
    await put(scripted, "run-1", *frames.opening("run-1", "lead"), text, question, name=long, prompt=long)
    scripted.graph["run-1"] = {"nodes": [{"id": long, "type": "llm"}], "edges": [{"from": long, "to": long}]}
    async with browser.page(scripted.url, 360, 740) as page:
        for place, there in (("", ".runs tr[data-run]"), ("start", ".pick"), ("run/run-1", ".question")):
            await go(page, place)
            await page.until(f"document.querySelector('{there}')")
            assert await page.evaluate("document.documentElement.scrollWidth") == 360, place
            assert await page.evaluate("document.querySelector('main').scrollWidth") <= 360, place
        for tab in ("actors", "graph", "events", "work"):
            await page.click(f".tabs [data-tab={tab}]")
            await page.until(f"getComputedStyle(document.querySelector('.panel.{tab}')).display === 'flex'")
            assert await page.evaluate("document.documentElement.scrollWidth") == 360, tab
        assert page.problems == []
