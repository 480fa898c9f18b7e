"""The page in a real browser, against the real server and real runs."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import pytest
import trio
from support.browser import Browser, Page
from support.fake_models import Reply, Request
from support.page_server import PageServer

import callboard

JOURNEY = """
    start: draft
    nodes:
      draft:
        type: llm
        prompt: "Invite a friend to {{initial_prompt}}."
        state_updates: {text: "{{output}}"}
        next: review
      review:
        type: approval
        question: "Send it?"
        options: ["yes", "no"]
        on_other: dropped
        routes: {"yes": sent, "no": dropped}
      sent: {type: end, output: "Sent: {{text}}"}
      dropped: {type: end, output: "Not sent."}
"""
WORDS = "Come to dinner, the lamp is lit and the soup is warm. " * 4


def node(id: str, state: str) -> str:
    return f"document.querySelector('.node[data-node={id}]')?.dataset.state === '{state}'"


def actor(name: str, state: str) -> str:
    named = f"row.querySelector('.name').textContent === '{name}' && row.dataset.state === '{state}'"
    return f"[...document.querySelectorAll('.actor')].some(row => {named})"


async def begin(page: Page, target: str, prompt: str) -> str:
    """Start a run as a person does; its id."""
    await page.click("a[href='#/start']")
    await page.click(f".pick[data-name={target}]")
    await page.type(prompt)
    await page.click("form.start .primary")
    await page.until("location.hash.startsWith('#/run/')")
    return str(await page.evaluate("location.hash.slice(6)"))


async def test_a_graph_is_started_watched_and_answered_and_a_reload_in_the_middle_loses_nothing(
    page_server: PageServer, browser: Browser
) -> None:
    page_server.agent(JOURNEY, "invitation")
    held = trio.Event()
    page_server.models.script(Reply(text=WORDS, hold=held, gap=0.01, piece=4))
    async with browser.page(page_server.page, 1600, 1000) as page:
        run = await begin(page, "invitation", "dinner")
        await page.until(node("draft", "running"))
        assert await page.evaluate(node("sent", "idle"))
        held.set()
        await page.until("document.querySelector('.said')?.textContent.length > 20")
        await page.reload()  # while the model speaks
        assert await page.evaluate("location.hash") == f"#/run/{run}"
        await page.until(f"document.querySelector('.said')?.textContent === {json.dumps(WORDS)}")
        await page.until(node("draft", "done"))
        await page.until(node("review", "waiting"))
        await page.click(".questions .choices button:first-child")
        await page.until("document.querySelector('.result')?.dataset.status === 'done'")
        assert await page.evaluate("document.querySelector('.result .output').textContent") == f"Sent: {WORDS}"
        for id, state in {"draft": "done", "review": "done", "sent": "done", "dropped": "idle"}.items():
            assert await page.evaluate(node(id, state)), id
        assert await page.evaluate("document.querySelector('.head .badge').dataset.state") == "done"
        await page.until("document.querySelector('.questions').hidden")  # it is told apart from the run
        assert "10 in, 5 out" in await page.evaluate("document.querySelector('.numbers').innerText")
        await page.click(".brand")
        await page.until(f"document.querySelector('tr[data-run={run}]')?.dataset.status === 'done'")
        await page.reload()  # and it is still there, past as it is
        await page.click(f"tr[data-run={run}] a")
        await page.until(f"document.querySelector('.said')?.textContent === {json.dumps(WORDS)}")
        assert page.problems == []
        assert {urlsplit(url).netloc for url in page.asked if url.startswith("http")} == {
            urlsplit(page_server.page).netloc
        }


FAMILY = "can_spawn_agents: true\ndescription: leads\ninstructions: lead"


async def test_a_child_is_cancelled_from_the_tree_by_keyboard_and_the_rest_goes_on(
    page_server: PageServer, browser: Browser
) -> None:
    page_server.plain(FAMILY, name="lead")
    page_server.plain("description: helps\ninstructions: help", name="helper")
    never = trio.Event()

    def answer(request: Request) -> Reply:
        if "agent__spawn" not in request.offered:
            return Reply(text="never said", hold=never)
        if not request.results:
            return Reply(calls=[("agent__spawn", {"agent": "helper", "prompt": "help"})])
        if len(request.results) == 1:
            return Reply(calls=[("agent__collect", {"id": json.loads(request.results[0])["id"]})])
        return Reply(text="I went on alone.")

    page_server.models.answer_with(answer)
    async with browser.page(page_server.page, 1600, 1000) as page:
        await begin(page, "lead", "work")
        await page.until(actor("helper", "running"))
        await page.evaluate("document.querySelector('[role=tree]').focus()")
        await page.press("/")
        await page.type("/helper")
        await page.press("Enter", "End", "c")
        await page.until("document.querySelector('dialog h2')?.textContent === 'Cancel helper?'")
        await page.press("Tab", "Enter")
        await page.until(actor("helper", "cancelled"))
        await page.until("document.querySelector('.result')?.dataset.status === 'done'")
        assert await page.evaluate("document.querySelector('.result .output').textContent") == "I went on alone."
        assert page.problems == []


HOSTILE = """<img src=x onerror="window.pwned=1"><script>window.pwned=2</script><style>*{display:none}</style>
</pre><a href="javascript:window.pwned=3">here</a>\u202e\x1b[2J"""


async def test_what_a_hostile_model_says_stays_text(page_server: PageServer, browser: Browser) -> None:
    page_server.plain("description: x\ninstructions: y\nglobal_tools: [fs_ls]", name="victim")
    page_server.models.script(
        Reply(text=HOSTILE, reasoning=HOSTILE, calls=[("fs_ls", {"path": HOSTILE}), (HOSTILE, {})])
    )
    page_server.models.answer_with(lambda request: Reply(text=HOSTILE))
    async with browser.page(page_server.page, 1600, 1000) as page:
        await begin(page, "victim", HOSTILE)
        await page.until("document.querySelector('.result')?.dataset.status === 'done'")
        made = "main :is(img, script, style, a[href^=javascript])"
        assert await page.evaluate(f"document.querySelectorAll('{made}').length") == 0
        said = await page.evaluate("[...document.querySelectorAll('.said')].map(each => each.textContent)")
        assert said == [HOSTILE, HOSTILE]
        assert await page.evaluate("window.pwned === undefined")
        assert page.problems == []
        assert {urlsplit(url).netloc for url in page.asked if url.startswith("http")} == {
            urlsplit(page_server.page).netloc
        }


async def test_a_run_that_failed_says_why_and_so_does_one_that_can_not_start(
    page_server: PageServer, browser: Browser
) -> None:
    page_server.plain("description: x\ninstructions: y", name="victim")
    page_server.models.answer_with(lambda request: Reply(status=400, error="the prompt is too long"))
    async with browser.page(page_server.page, 1600, 1000) as page:
        run = await begin(page, "victim", "x")
        await page.until("document.querySelector('.result')?.dataset.status === 'failed'")
        assert "the prompt is too long" in await page.evaluate("document.querySelector('.result').textContent")
        await page.click(".brand")
        await page.until(f"document.querySelector('tr[data-run={run}] .sub')?.textContent.includes('too long')")
        await page.click("a[href='#/start']")
        await page.until("document.activeElement.name === 'target'")
        await page.until("document.querySelector('.pick')")  # which moves the button that is clicked on
        await page.type("no-such-agent")
        await page.click("form.start .primary")
        await page.until("document.querySelector('form.start .problem').textContent.includes('no-such-agent')")
        assert page.problems == []


WENT_ON = """
    start: draft
    nodes:
      draft: {type: llm, prompt: p, max_attempts: 1, state_updates: {text: "{{output}}"}, next: sent}
      sent: {type: end, output: "Sent: {{text}}"}
"""


async def test_a_node_that_failed_is_failed_in_the_tree_and_in_the_graph_and_so_is_the_run_that_went_on(
    page_server: PageServer, browser: Browser
) -> None:
    page_server.agent(WENT_ON, "went-on")
    page_server.models.answer_with(lambda _: Reply(status=404, error="no such model"))
    async with browser.page(page_server.page, 1600, 1000) as page:
        await begin(page, "went-on", "dinner")
        await page.until("document.querySelector('.result')?.dataset.status === 'failed'")
        await page.until(actor("draft", "failed"))
        await page.until(node("draft", "failed"))  # the graph is drawn by itself, a moment before the tree or after it
        await page.until(actor("went-on", "failed"))
        assert "no such model" in await page.evaluate("document.querySelector('.result .error').textContent")
        output = await page.evaluate("document.querySelector('.result .output').textContent")
        assert output == "Sent: LLM node failed: fake:model: no such model (HTTP 404)"
        assert await page.evaluate("document.querySelector('.head .badge').dataset.state") == "failed"
        assert page.problems == []


async def test_an_agent_at_work_is_inspected_told_something_paused_and_goes_on(
    page_server: PageServer, browser: Browser
) -> None:
    page_server.plain("description: x\ninstructions: y\nglobal_tools: [fs_ls]", name="worker")
    first = trio.Event()
    page_server.models.script(Reply(calls=[("fs_ls", {"path": "."})], hold=first), Reply(text="As you wish."))
    async with browser.page(page_server.page, 1600, 1000) as page:
        run = await begin(page, "worker", "work")
        await page.until(actor("worker", "running"))
        await page.click(f".actor[data-path='/{run}/worker']")
        await page.click(".message textarea")
        await page.type("be brief")
        await page.press("Enter")
        await page.until("document.querySelector('.toast')?.textContent.startsWith('Sent')")
        await page.click(".work .bar button:not([hidden])")
        await page.until("document.querySelector('dialog.inspect .recent')?.textContent.includes('llm.request')")
        await page.press("Escape")
        await page.until("!document.querySelector('dialog')")  # which has given the focus back
        await page.evaluate("document.querySelector('[role=tree]').focus()")
        await page.press("p")
        await page.until(actor("worker", "paused"))
        first.set()
        await page.press("p")
        await page.until("document.querySelector('.result')?.dataset.status === 'done'")
        assert "be brief" in json.dumps(page_server.models.requests[-1].json["messages"])
        assert page.problems == []


@pytest.mark.parametrize("width", [400, pytest.param(1400, marks=pytest.mark.soak)])
async def test_what_the_model_of_an_agent_saw_is_in_its_inspector(
    page_server: PageServer, browser: Browser, width: int
) -> None:
    page_server.plain(f"description: x\ninstructions: {json.dumps(HOSTILE)}\nglobal_tools: [fs_ls]", name="worker")
    page_server.models.script(Reply(text=HOSTILE, calls=[("fs_ls", {"path": "."})]), Reply(text="z" * 3000))
    async with browser.page(page_server.page, width, 900) as page:
        run = await begin(page, "worker", "work")
        await page.until("document.querySelector('.result')?.dataset.status === 'done'")
        if width < 820:
            await page.click(".tabs [data-tab=actors]")
        await page.click(f".actor[data-path='/{run}/worker']")
        await page.click(".work .bar button:not([hidden])")
        await page.until("document.querySelectorAll('.calls li').length === 2")
        ends = "[...document.querySelectorAll('.calls .end')].map(each => each.textContent)"
        assert await page.evaluate(ends) == ["calls fs_ls", "end"]
        await page.click(".calls li:last-child summary")
        await page.until("document.querySelectorAll('.calls li:last-child .part').length > 4")
        shown = await page.evaluate("document.querySelector('.calls li:last-child .call').textContent")
        for text in (HOSTILE, "work", "calls fs_ls", "z" * 3000, "Parameters"):
            assert text in shown
        inside = "document.querySelector('.inspect .inside')"
        assert await page.evaluate(f"{inside}.scrollWidth <= {inside}.clientWidth")
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert await page.evaluate("window.pwned === undefined")
        await page.click(".calls li:last-child .part summary")
        assert await page.evaluate("document.querySelector('.calls li:last-child details.part').open")
        assert page.problems == []


async def test_without_anything_kept_the_inspector_says_how_to_keep_it(
    page_server: PageServer, browser: Browser
) -> None:
    page_server.agent('start: end\nnodes: {end: {type: end, output: "x"}}', "silent")
    async with browser.page(page_server.page, 1400, 900) as page:
        run = await begin(page, "silent", "work")
        await page.until("document.querySelector('.result')?.dataset.status === 'done'")
        await page.click(f".actor[data-path='/{run}/silent']")
        await page.click(".work .bar button:not([hidden])")
        await page.until("document.querySelector('.kept .hint')?.textContent.includes('keep_requests: true')")
        assert page.problems == []


def step_before(place: str) -> str:
    """The button of the step behind which this visit of a node begins."""
    return f"[...document.querySelectorAll('dialog.steps li')].find(row => row.dataset.place === '{place}')"


async def test_a_run_that_is_over_goes_on_from_one_of_its_steps_with_other_words(
    page_server: PageServer, browser: Browser
) -> None:
    page_server.agent(JOURNEY, "invitation")
    page_server.models.answer_with(lambda request: Reply(text=f"<{request.prompt}>"))
    async with browser.page(page_server.page, 1280, 900) as page:
        run = await begin(page, "invitation", "dinner")
        await page.until(node("review", "waiting"))
        await page.click(".questions .choices button:first-child")
        await page.until("document.querySelector('.result')?.dataset.status === 'done'")
        await page.click(".head .to-steps")
        await page.until(step_before("draft#1"))
        assert await page.evaluate("document.querySelectorAll('dialog.steps li').length") > 4
        await page.evaluate(f"{step_before('draft#1')}.querySelector('button').click()")
        await page.until("document.querySelector('dialog.steps form textarea[name=prompt]')")
        await page.type("tea")
        await page.click("dialog.steps form .primary")
        await page.until(f"location.hash.startsWith('#/run/') && location.hash !== '#/run/{run}'")
        await page.until(node("review", "waiting"))
        await page.click(".questions .choices button:first-child")
        await page.until("document.querySelector('.result')?.dataset.status === 'done'")
        said = await page.evaluate("document.querySelector('.result .output').textContent")
        assert said == "Sent: <Invite a friend to tea.>"
        assert page.problems == []


async def test_a_run_that_is_not_kept_says_that_it_has_no_steps(page_server: PageServer, browser: Browser) -> None:
    page_server.agent(JOURNEY, "invitation")
    async with browser.page(page_server.page, 1280, 900) as page:
        outcome = await callboard.run("invitation", "tea", answers=["no"], root=page_server.root)
        await page.evaluate(f"location.hash = '#/run/{outcome.run_id}'")
        await page.until("document.querySelector('.head .to-steps')?.hidden === false")
        await page.evaluate("document.querySelector('.head .to-steps').click()")  # wherever it is just then
        await page.until("document.querySelector('dialog.steps .inside .hint')?.textContent.includes('no durable run')")
        assert page.problems == []
