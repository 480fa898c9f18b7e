"""The built-in deep-research, whole: a scripted model, a web site on loopback, the real tools and a real base."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from support.agent_runs import AgentRunner
from support.fake_models import FakeModels, Reply, Request

import callboard
from callboard.actors.work.library import AGENTS

if TYPE_CHECKING:
    from .conftest import Site

RESEARCH = AGENTS / "deep-research"
TOPIC = "How warm does a tea house keep its tea?"
WARM, OLD, COST = "How warm is tea served?", "How old is the custom?", "What does a stove cost?"
WEB = {"web_search_loki", "fetch_url_via_curl", "search_wikipedia", "search_arxiv"}


class Mind:
    """The model behind every node: knows from the system prompt who is asked, and keeps what each was asked.

    Attributes:
        asked: requests by who got them: plan, research, vet, review, write.
        reviews: what the reviewer says, one after the other.
        report: what the writer writes.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self.asked: dict[str, list[Request]] = {who: [] for who in BEGINNINGS.values()}
        self.plans: Iterator[list[str]] = iter([[WARM, OLD]])
        self.reviews: Iterator[tuple[str, str, list[str]]] = iter([("pass", "", [])])
        self.report = ""

    def answer(self, request: Request) -> Reply | str:
        who = next(who for beginning, who in BEGINNINGS.items() if request.system.startswith(beginning))
        self.asked[who].append(request)
        return getattr(self, who)(request)

    def plan(self, request: Request) -> str:
        return json.dumps({"research_plan": "Ask those who pour it.", "questions": next(self.plans)})

    def research(self, request: Request) -> Reply | str:
        question = request.prompt.splitlines()[0].removeprefix("Question: ")
        match len(request.results):
            case 0:
                return Reply(calls=[("web_search_loki", {"query": question})])
            case 1:
                (page,) = json.loads(request.results[0])
                return Reply(calls=[("fetch_url_via_curl", {"url": page["url"]})])
        return f"The page says: {request.results[1].splitlines()[-1]} ({self.site.url}/tea)"

    def vet(self, request: Request) -> Reply | str:
        if not request.results:
            return Reply(calls=[("classify_sources", {"sources": [f"{self.site.url}/tea", "10.1000/182"]})])
        return "tiers: " + " ".join(source["tier"] for source in json.loads(request.results[0]))

    def review(self, request: Request) -> str:
        verdict, feedback, questions = next(self.reviews)
        return json.dumps({"verdict": verdict, "feedback": feedback, "next_questions": questions})

    def write(self, request: Request) -> str:
        return self.report


BEGINNINGS = {
    "You plan research.": "plan",
    "You look one question up": "research",
    "You judge the sources": "vet",
    "You review research": "review",
    "You are given a topic": "write",
}


@pytest.fixture
def site(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A web that has one page on everything, and a search that finds it."""
    link = "/l/?uddg=" + quote(f"{site.url}/tea", safe="")
    site.pages = {
        "/search": f'<a class="result__a" href="{link}">Tea</a><a class="result__snippet">on tea</a>',
        "/tea": "<html><title>Tea</title><p>Tea is served at 70 degrees.</p></html>",
        "HEAD /tea": (405, {}, b""),
        "/unheard-of": "<p>News</p>",
    }
    monkeypatch.setenv("CALLBOARD_WEB_SEARCH_URL", f"{site.url}/search")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return site


@pytest.fixture
def mind(site: Site, fake_model: FakeModels, agent_runner: AgentRunner) -> Mind:
    """See `Mind`."""
    mind = Mind(site)
    mind.report = f"# Tea\n\nIt is served at 70 degrees ({site.url}/tea)."
    fake_model.answer_with(mind.answer)
    return mind


@pytest.fixture
def agent_runner(knowing: AgentRunner) -> AgentRunner:
    """A stage that can build the base of the notes."""
    return knowing


FIRST = ["parse_request", "bootstrap_research", "plan", "knowledge_lookup"]
PASS = ["research_each_question", "combine_findings", "vet_sources", "critique", "reflexion_gate"]
LAST = ["synthesize", "verify_sources", "approve"]


async def test_it_revises_twice_reports_the_broken_citation_takes_a_wish_and_ends_when_accepted(
    agent_runner: AgentRunner, mind: Mind, site: Site
) -> None:
    mind.plans = iter([[WARM, OLD], [COST]])
    mind.reviews = iter(
        [("revise", "No dates.", [OLD]), ("revise", "Still none.", []), ("pass", "", []), ("pass", "", [])]
    )
    gone, unheard = f"{site.url}/gone", f"{site.url}/unheard-of"
    mind.report = f"# Tea\n\nIt is warm ({site.url}/tea), and has been ({gone}). News: {unheard}"
    outcome = await agent_runner.run(
        TOPIC,
        target="deep-research",
        answers={"approve": ["What does it cost?", "accept"]},
        variables={"private_sources": "yes"},
    )
    assert outcome.status == "done", outcome.error
    # Twice round by the reviewer, once more by the reader, who is asked again.
    assert outcome.order == [
        *(*FIRST, *PASS, *PASS, *PASS, *LAST),
        *("incorporate_feedback", "plan", *PASS, *LAST, "end_accepted"),
    ]
    checked = [
        "Sources: 3 cited; 2 found, 1 broken.",
        f"  broken: {gone} (404 Said)",
        f"  not in the findings: {gone}",
        f"  not in the findings: {unheard}",
    ]
    assert outcome.output.splitlines() == [*mind.report.splitlines(), "", "----", *checked]
    first, second = [asked.question["text"] for asked in agent_runner.of("question.asked")]
    assert "\n".join(checked) in first
    assert "\n".join(checked) in second
    assert {"HEAD /tea", "GET /tea", "HEAD /gone", "GET /gone", "HEAD /unheard-of"} <= set(site.asked)
    assert agent_runner.warnings == []
    _check_who_was_told_what(mind)


def _check_who_was_told_what(mind: Mind) -> None:
    research = [request for request in mind.asked["research"] if not request.results]
    questions = [request.prompt.splitlines()[0].removeprefix("Question: ") for request in research]
    # All of the plan; then what the reviewer names; then the same again; then what the reader's wish came to.
    assert sorted(questions[:2]) == sorted([WARM, OLD])
    assert questions[2:] == [OLD, OLD, COST]
    assert {frozenset(request.offered) for request in mind.asked["research"]} == {frozenset(WEB)}
    assert {frozenset(request.offered) for request in mind.asked["vet"]} == {frozenset({"classify_sources"})}
    for who in ("plan", "review", "write"):
        assert [name for request in mind.asked[who] for name in request.offered if "user__" not in name] == []
    # The notes of knowledge/ reach who looks things up, and each pass what was said of the one before.
    assert "# Working with sources" in research[0].prompt
    assert "No dates." in research[2].prompt
    assert "Still none." in research[3].prompt
    assert f"## {WARM}\n\nThe page says: Tea is served at 70 degrees." in research[3].prompt
    replanned = mind.asked["plan"][1]
    assert "What does it cost?" in replanned.prompt
    assert f"## {OLD}" in replanned.prompt
    # Nothing that was found before is lost, and the writer hears the wish.
    assert "tiers: unverified reviewed" in mind.asked["review"][0].prompt
    last = mind.asked["write"][-1].prompt
    assert [line for line in last.splitlines() if line.startswith("## ")] == [
        f"## {each}" for each in (WARM, OLD, COST)
    ]
    assert "- What does it cost?" in last


async def test_a_reviewer_who_is_never_content_does_not_hold_the_report_up(
    agent_runner: AgentRunner, mind: Mind
) -> None:
    mind.reviews = iter([("revise", f"Gap {n}.", []) for n in range(1, 5)])
    outcome = await agent_runner.run(TOPIC, target=RESEARCH, answers={"approve": "accept"}, state={"max_revisions": 1})
    assert outcome.order == [*FIRST, *PASS, *PASS, *LAST, "end_accepted"]
    assert "Gap 2." in mind.asked["write"][0].prompt


async def test_a_wish_about_the_writing_alone_has_nothing_looked_up_again(
    agent_runner: AgentRunner, mind: Mind
) -> None:
    mind.plans = iter([[WARM], []])
    mind.reviews = iter([("pass", "", []), ("pass", "", [])])
    outcome = await agent_runner.run(TOPIC, target=RESEARCH, answers={"approve": ["Shorter, please.", "accept"]})
    assert outcome.status == "done", outcome.error
    assert len([request for request in mind.asked["research"] if not request.results]) == 1
    written = mind.asked["write"][-1].prompt
    assert f"## {WARM}\n\nThe page says" in written
    assert "- Shorter, please." in written


async def test_without_a_prompt_it_asks_and_what_is_rejected_is_not_shown(
    agent_runner: AgentRunner, mind: Mind
) -> None:
    outcome = await agent_runner.run("", target=RESEARCH, answers={"ask_topic": TOPIC, "approve": "reject"})
    assert outcome.status == "done", outcome.error
    assert outcome.output == f"The report was turned down. The topic was: {TOPIC}"
    assert outcome.order[:3] == ["parse_request", "ask_topic", "bootstrap_research"]


async def test_private_pages_are_left_unchecked_and_told_unless_allowed(
    agent_runner: AgentRunner, mind: Mind, site: Site
) -> None:
    outcome = await agent_runner.run(TOPIC, target=RESEARCH, answers={"approve": "accept"})
    assert outcome.output.splitlines()[-2:] == [
        "Sources: 1 cited; 1 not checked.",
        f"  not checked: {site.url}/tea (a private address)",
    ]
    assert "HEAD /tea" not in site.asked


async def test_one_question_that_fails_is_told_and_the_others_are_used(agent_runner: AgentRunner, mind: Mind) -> None:
    mind.plans = iter([[WARM, "Fail, please?"]])
    answer = mind.research

    def research(request: Request) -> Reply | str:
        if "Fail, please?" in request.prompt:
            return Reply(status=400, error="no such thing")
        return answer(request)

    mind.research = research
    outcome = await agent_runner.run(TOPIC, target=RESEARCH, answers={"approve": "accept"})
    assert outcome.status == "done", outcome.error
    assert agent_runner.warnings == ["item_failed"]
    findings = mind.asked["write"][0].prompt
    assert f"## {WARM}\n\nThe page says" in findings
    assert "## Fail, please?\n\nNot answered: " in findings


async def test_with_no_reviewer_and_nobody_to_vet_there_is_still_a_report(
    agent_runner: AgentRunner, mind: Mind
) -> None:
    def fail(request: Request) -> Reply:
        return Reply(status=400, error="not today")

    mind.vet = mind.review = fail
    outcome = await agent_runner.run(TOPIC, target=RESEARCH, answers={"approve": "accept"})
    assert outcome.status == "done", outcome.error
    assert outcome.output.startswith("# Tea\n")


def test_it_validates_without_errors_or_warnings_and_has_seventeen_nodes(tmp_path: Path) -> None:
    assert callboard.validate(RESEARCH, strict=True, config_dir=tmp_path) == []
    assert len(callboard.load(RESEARCH, config_dir=tmp_path).graph.nodes) == 17
