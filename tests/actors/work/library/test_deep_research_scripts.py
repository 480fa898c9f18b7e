"""The scripts and the tool of the built-in deep-research, each by itself."""

from __future__ import annotations

import contextlib
import re
import runpy
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from support.fake_models import listening
from support.graph_scripts import Json, played, printed

from callboard.actors.work.library import AGENTS

if TYPE_CHECKING:
    from .conftest import Site

AGENT = AGENTS / "deep-research"
SCRIPTS = AGENT / "scripts"


def run(script: str, state: Json | None = None, **variables: str) -> Json:
    return printed(SCRIPTS / f"{script}.py", state, **variables)


def test_its_helper_is_the_one_of_the_coder() -> None:
    """Each agent is a directory that can be copied, so each has the file; there is one text of it."""
    assert (SCRIPTS / "graph_state.py").read_bytes() == (AGENTS / "coder" / "scripts" / "graph_state.py").read_bytes()


# --- the way through the graph


@pytest.mark.parametrize(("prompt", "target"), [(" tea ", "bootstrap_research"), ("  ", "ask_topic")])
def test_without_a_prompt_the_topic_is_asked_for(prompt: str, target: str) -> None:
    topic = {"topic": prompt.strip()} if prompt.strip() else {}
    assert run("parse_request", {"initial_prompt": prompt}) == {**topic, "_next": target}


def test_everybody_is_told_the_date() -> None:
    before = time.strftime("%Y-%m-%d")
    told = run("bootstrap_research")
    assert told in ({"today": before}, {"today": time.strftime("%Y-%m-%d")})


GATE: Json = {"verdict": "revise", "feedback": "No date.", "questions": ["a?", "b?"], "findings": "## a?\n\nyes"}


def test_a_revision_looks_into_the_questions_that_the_reviewer_names() -> None:
    went = run("reflexion_gate", {**GATE, "next_questions": ["b?", "c?"], "research_attempts": 1})
    assert (went["_next"], went["research_attempts"]) == ("research_each_question", 2)
    assert went["questions"] == ["b?", "c?"]
    assert "(pass 2 of 2)" in went["research_feedback"]
    assert "No date." in went["research_feedback"]
    assert went["research_feedback"].endswith("## a?\n\nyes")


def test_a_revision_without_questions_is_one_of_all_of_them() -> None:
    assert run("reflexion_gate", {**GATE, "next_questions": []})["questions"] == ["a?", "b?"]


def test_when_the_passes_are_used_up_the_writer_is_told_what_is_missing() -> None:
    went = run("reflexion_gate", {**GATE, "research_attempts": 1, "max_revisions": 1})
    assert went.pop("open_points").endswith("No date.")
    assert went == {"_next": "synthesize"}


@pytest.mark.parametrize("verdict", ["pass", ""])
def test_what_passes_goes_to_the_writer(verdict: str) -> None:
    assert run("reflexion_gate", {**GATE, "verdict": verdict}) == {"_next": "synthesize", "open_points": ""}


def test_what_the_reader_says_goes_back_to_the_plan_and_is_not_forgotten() -> None:
    state = {"decision": "Shorter.", "findings": "## a?\n\nyes", "research_attempts": 2, "open_points": "x"}
    went = run("incorporate_feedback", state)
    assert (went["_next"], went["research_attempts"], went["open_points"]) == ("plan", 0, "")
    assert "Shorter." in went["research_feedback"]
    again = run("incorporate_feedback", {**state, **went, "decision": "Older sources."})
    assert again["wishes"].splitlines()[1:] == ["- Shorter.", "- Older sources."]
    assert "Shorter." not in again["research_feedback"]


# --- findings


def test_new_findings_take_the_place_of_old_ones_and_failures_take_none() -> None:
    state = {
        "answers": [{"question": "a?", "finding": "old a"}, {"question": "b?", "finding": "old b"}],
        "questions": ["b?", "a?", "c?", "d?"],
        "question_findings": ["new b ", {"error": "timed out", "code": "node_failed", "index": 1}, "", "new d"],
    }
    combined = run("combine_findings", state)
    assert combined["answers"] == [
        {"question": "a?", "finding": "old a"},
        {"question": "b?", "finding": "new b"},
        {"question": "d?", "finding": "new d"},
    ]
    assert combined["findings"] == (
        "## a?\n\nold a\n\n## b?\n\nnew b\n\n## d?\n\nnew d\n\n## c?\n\nNot answered: nothing was reported"
    )


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"questions": ["a?"], "question_findings": [{"error": "401 bad key"}]}, "401 bad key"),
        ({"questions": [], "question_findings": []}, "the plan has none"),
    ],
)
def test_with_nothing_found_at_all_it_ends_and_says_why(state: Json, why: str) -> None:
    status, _, stderr = played(SCRIPTS / "combine_findings.py", state)
    assert (status, stderr) == (1, f"no question could be answered: {why}\n")


# --- the tool


@pytest.fixture
def tier(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    classify: Any = runpy.run_path(str(AGENT / "tools.py"))["classify_sources"]
    return lambda source: classify([source])[0]["tier"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("https://www.rfc-editor.org/rfc/rfc9114", "standard"),
        ("https://www.nasa.gov/x", "official"),
        ("https://ons.gov.uk", "official"),
        ("https://ec.europa.eu/eurostat", "official"),
        ("https://www.mit.edu/", "academic"),
        ("https://www.cs.ox.ac.uk/people", "academic"),
        ("https://www.nature.com/articles/1", "reviewed"),
        ("https://www.ncbi.nlm.nih.gov/pmc/1", "reviewed"),
        ("https://doi.org/10.1038/nature1", "reviewed"),
        ("10.1038/nature1", "reviewed"),
        ("doi:10.48550/arXiv.2101.00001", "preprint"),
        ("https://dx.doi.org/10.1101%2F2020.01.01.1", "preprint"),
        ("10.1101/gr.1.2", "reviewed"),
        ("http://arxiv.org/abs/2101.00001", "preprint"),
        ("https://en.wikipedia.org/wiki/Tea", "encyclopedia"),
        ("https://old.reddit.com/r/tea", "forum"),
        ("https://www.mozilla.org/", "organization"),
        ("https://example.com/", "unverified"),
        # Names that only look like it.
        ("https://nasa.gov.example.com/", "unverified"),
        ("https://nist.gov@example.com/", "unverified"),
        ("https://notarxiv.org.example.com/", "unverified"),
        ("https://myreddit.com/", "unverified"),
        ("https://10.0.0.1/x.gov", "unverified"),
        ("http://[::1]/", "unverified"),
        ("NASA.GOV:443/x", "official"),
        ("https://[broken", "unverified"),
        ("", "unverified"),
    ],
)
def test_a_source_is_judged_by_where_it_is_published(tier: Callable[[str], str], source: str, expected: str) -> None:
    assert tier(source) == expected


# --- citations


@pytest.fixture
def cited() -> Callable[[str], list[str]]:
    function: Callable[[str], list[str]] = runpy.run_path(str(SCRIPTS / "citations.py"))["cited"]
    return function


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("See https://a.example/b.", ["https://a.example/b"]),
        ("(https://a.example/b_(c)) and <https://a.example/d>", ["https://a.example/b_(c)", "https://a.example/d"]),
        ("[x](https://a.example/b)[y](https://a.example/c).", ["https://a.example/b", "https://a.example/c"]),
        ("**https://a.example/b**, `https://a.example/c`", ["https://a.example/b", "https://a.example/c"]),
        ("https://a.example/#x https://a.example/#y", ["https://a.example/"]),
        ("“https://a.example/b”。| https://a.example/c |", ["https://a.example/b", "https://a.example/c"]),
        ("doi:10.1000/x.y(1), (10.1000/z)", ["https://doi.org/10.1000/x.y(1)", "https://doi.org/10.1000/z"]),
        ("https://doi.org/10.1000/x and 10.1000/x", ["https://doi.org/10.1000/x"]),
        ("https:// http://[ https://: version 10.15/3", []),
    ],
)
def test_citations_are_found_as_they_are_written(
    cited: Callable[[str], list[str]], text: str, expected: list[str]
) -> None:
    assert cited(text) == expected


async def verified(report: str, findings: str = "", **variables: str) -> list[str]:
    """The lines of the check."""
    variables = {"LLM_AGENT_VAR_PRIVATE_SOURCES": "yes", "no_proxy": "*", **variables}
    state = {"report": report, "findings": findings or report}
    told = await trio.to_thread.run_sync(lambda: run("verify_sources", state, **variables))
    return str(told["source_check"]).splitlines()


async def test_what_is_there_is_found_whichever_way_the_server_wants_to_be_asked(site: Site) -> None:
    site.pages = {
        "/plain": "x",
        "HEAD /get-only": (405, {}, b""),
        "GET /get-only": "x",
        "/members": (403, {}, b""),
        "/moved": (301, {"Location": "/plain"}, b""),
    }
    report = " ".join(site.url + target for target in ("/plain", "/get-only", "/members", "/moved"))
    assert await verified(report) == ["Sources: 4 cited; 4 found."]
    assert sorted(site.asked) == [
        *("GET /get-only", "GET /members", "HEAD /get-only", "HEAD /members", "HEAD /moved"),
        *("HEAD /plain", "HEAD /plain"),
    ]


async def test_what_is_broken_is_named_with_its_reason(site: Site) -> None:
    site.pages = {"/loop": (302, {"Location": "/loop"}, b""), "/odd": (302, {"Location": "file:///etc/passwd"}, b"")}
    gone, nobody, loop, odd = f"{site.url}/gone", "http://127.0.0.1:1/x", f"{site.url}/loop", f"{site.url}/odd"
    lines = await verified(f"{gone}, {nobody}, {loop}, {odd}")
    assert lines[0] == "Sources: 4 cited; 4 broken."
    assert lines[1] == f"  broken: {gone} (404 Said)"
    assert re.fullmatch(rf"  broken: {nobody} \(.*[Rr]efused\)", lines[2])
    assert lines[3] == f"  broken: {loop} (more than 5 redirects)"
    assert lines[4] == f"  broken: {odd} (it leads to file:///etc/passwd)"


async def test_what_was_not_among_the_findings_is_told(site: Site) -> None:
    site.pages = {"/a": "x", "/b/": "x"}
    lines = await verified(f"{site.url}/a {site.url}/b/", findings=f"({site.url}/b)")
    assert lines == ["Sources: 2 cited; 2 found.", f"  not in the findings: {site.url}/a"]


def test_a_report_without_sources_is_told_so() -> None:
    assert run("verify_sources", {"report": "Trust me."}) == {"source_check": "Sources: the report cites none."}


PRIVATE = (
    *("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0.0.0.0", "10.0.0.7", "100.64.0.1"),
    *("192.168.1.1", "[::1]", "[fd00::1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"),
    *("[::7f00:1]", "[::808:808]", "[64:ff9b:1::808:808]", "[64:ff9b:1:a00:1::]", "[fec0::1]", "192.0.0.8"),
)
CREDENTIALS = ("169.254.169.254", "[fe80::1]", "[::ffff:169.254.1.1]", "[fd00:ec2::254]", "100.100.100.200")
CREDENTIALS += ("[::a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::a9fe:a9fe]", "192.0.0.192")


async def test_private_addresses_are_left_alone_however_they_are_written(site: Site) -> None:
    urls = [f"{site.url.replace('127.0.0.1', host)}/x" for host in PRIVATE]
    lines = await verified(" ".join(urls), LLM_AGENT_VAR_PRIVATE_SOURCES="no")
    assert lines[1:] == [f"  not checked: {url} (a private address)" for url in urls]
    assert site.asked == []


async def test_where_a_redirect_leads_is_looked_at_too(site: Site) -> None:
    site.pages = {"/x": (302, {"Location": "http://169.254.169.254/latest/meta-data"}, b"")}
    lines = await verified(f"{site.url}/x")
    assert lines[1] == f"  not checked: {site.url}/x (an address where machines keep their credentials)"


async def test_credentials_of_machines_are_never_asked_for() -> None:
    urls = [f"http://{host}/latest" for host in CREDENTIALS]
    lines = await verified(" ".join(urls))
    why = "an address where machines keep their credentials"
    assert lines[1:] == [f"  not checked: {url} ({why})" for url in urls]


async def test_a_page_whose_certificate_nobody_vouches_for_is_broken(
    site: Site, nursery: trio.Nursery, tmp_path: Path
) -> None:
    key, certificate = str(tmp_path / "key"), str(tmp_path / "certificate")
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*made, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    listener, port = listening()

    async def serve(stream: trio.SocketStream) -> None:
        with contextlib.suppress(trio.BrokenResourceError):  # the client does not like what it sees
            await site.serve(trio.SSLStream(stream, tls, server_side=True, https_compatible=True))

    nursery.start_soon(trio.serve_listeners, serve, [listener])
    site.pages = {"/x": "x"}
    url = f"https://localhost:{port}/x"
    assert "certificate verify failed" in (await verified(url))[1]
    assert await verified(url, SSL_CERT_FILE=certificate) == ["Sources: 1 cited; 1 found."]


async def test_through_a_proxy_the_proxy_decides_but_for_written_addresses(site: Site) -> None:
    site.pages = {"http://papers.example/a": "x"}
    proxies = {"http_proxy": site.url, "no_proxy": "", "LLM_AGENT_VAR_PRIVATE_SOURCES": "no"}
    lines = await verified("http://papers.example/a http://10.0.0.7/b", **proxies)
    assert lines == [
        "Sources: 2 cited; 1 found, 1 not checked.",
        "  not checked: http://10.0.0.7/b (a private address)",
    ]
    assert site.asked == ["HEAD http://papers.example/a"]


async def test_servers_that_say_nothing_do_not_keep_it(nursery: trio.Nursery) -> None:
    """More of them than are asked at once; what was learned until then is told."""
    listener, port = listening()
    nursery.start_soon(trio.serve_listeners, lambda _: trio.sleep_forever(), [listener])
    report = " ".join(f"http://127.0.0.1:{port}/{n}" for n in range(12))
    code = (
        "import pages, verify_sources\n"
        "pages.SECONDS, verify_sources.SECONDS = 600.0, 0.5\n"
        f"print(verify_sources.summary({report!r}, ''))"
    )
    done = await trio.run_process(
        ["python3", "-B", "-c", code],
        env={"PYTHONPATH": str(SCRIPTS), "LLM_AGENT_VAR_PRIVATE_SOURCES": "yes"},
        capture_stdout=True,
    )
    assert done.stdout.decode().splitlines()[0] == "Sources: 12 cited; 12 not checked."
    assert b"(time was up)" in done.stdout


async def test_many_citations_are_looked_at_side_by_side_and_not_without_end(site: Site) -> None:
    site.pages = {f"/{n}": "x" for n in range(120)}
    lines = await verified(" ".join(f"{site.url}/{n}" for n in range(110)))
    assert lines[0] == "Sources: 110 cited; 100 found, 10 not checked."
    assert lines[1] == f"  not checked: {site.url}/100 (too many)"
    assert len(site.asked) == 100
