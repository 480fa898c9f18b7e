"""The tools that need an account, against servers on loopback that speak as the services' own documents say."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

from callboard.actors.work.library import SENDING, TOOLS
from callboard.actors.work.tools.permissions import Permissions
from callboard.actors.work.tools.registry import WITH_ACCOUNTS, ToolOptions, ToolRegistry
from callboard.protocol.errors import ActorFailed, ToolFailed
from callboard.protocol.settings import Settings
from callboard.supervisors import Actor, Root


class Asked(NamedTuple):
    """A request that the service got."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes


class Service:
    """An HTTP service on loopback that answers everything alike."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.status = 200
        self.answer: Any = {}
        self.headers: dict[str, str] = {}
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                service.asked.append(Asked(self.command, parts.path, parse_qs(parts.query), headers, body))
                data = service.answer if isinstance(service.answer, bytes) else json.dumps(service.answer).encode()
                self.send_response(service.status)
                for name, value in service.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


class Caller:
    """Calls library tools as an agent would, in an environment of its own."""

    def __init__(self, base: Path, root: Root) -> None:
        self.base = base
        self.environ = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(base),
            "NO_PROXY": "127.0.0.1",
        }
        self._root = root

    def tool(self, name: str) -> Any:
        registry = ToolRegistry(self.base, Settings(), self.environ)
        home = registry.home(directory=None, agent=None, values={}, options=ToolOptions())
        (tool,) = registry.named([name], home, ToolOptions())
        return tool

    async def __call__(self, name: str, /, **arguments: Any) -> Any:
        tool = self.tool(name)

        async def body(me: Actor) -> Any:
            return await tool.run(me, arguments)

        try:
            return await self._root.spawn(body, name=name, link=False).result()
        except ActorFailed as failed:
            raise (failed.__cause__ or failed) from None


@pytest.fixture
async def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Caller]:
    monkeypatch.chdir(tmp_path)
    async with Root() as root:
        yield Caller(tmp_path, root)


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


async def test_a_page_comes_as_markdown_by_jina_with_a_key_or_without(call: Caller, service: Service) -> None:
    service.answer = b"Title: Example Domain\n\nURL Source: https://example.org/\n\nMarkdown Content:\nThis domain ..."
    call.environ["CALLBOARD_JINA_READER_URL"] = service.url
    told = await call("fetch_url_via_jina", url="https://example.org/a?b=c")
    assert told["output"].startswith("Title: Example Domain")
    assert (service.asked[0].path, service.asked[0].query) == ("/https://example.org/a", {"b": ["c"]})
    assert "authorization" not in service.asked[0].headers
    call.environ["JINA_API_KEY"] = "jina_k"
    await call("fetch_url_via_jina", url="https://example.org/")
    assert service.asked[1].headers["authorization"] == "Bearer jina_k"
    with pytest.raises(ToolFailed) as failed:
        await call("fetch_url_via_jina", url="file:///etc/passwd")
    assert "no http or https URL" in failed.value.stderr


async def test_jina_searches_the_web(call: Caller, service: Service) -> None:
    page = {"title": "T", "url": "https://example.org", "description": "d", "content": "x" * 5_000, "usage": {}}
    service.answer = {"code": 200, "status": 20000, "data": [page, {**page, "content": ""}], "meta": {}}
    call.environ |= {"CALLBOARD_JINA_SEARCH_URL": service.url, "JINA_API_KEY": "jina_k"}
    found = await call("web_search_jina", query="a b")
    assert found == [{"title": "T", "url": "https://example.org", "text": text} for text in ("x" * 2_000, "d")]
    (asked,) = service.asked
    assert (asked.query, asked.headers["authorization"]) == ({"q": ["a b"]}, "Bearer jina_k")
    assert asked.headers["accept"] == "application/json"


async def test_tavily_answers_with_pages(call: Caller, service: Service) -> None:
    result = {"title": "T", "url": "https://example.org", "content": "c", "score": 0.9, "raw_content": None}
    service.answer = {"query": "q", "answer": "42", "images": [], "results": [result] * 20, "response_time": "1.67"}
    call.environ |= {"CALLBOARD_TAVILY_URL": f"{service.url}/search", "TAVILY_API_KEY": "tvly-k"}
    found = await call("web_search_tavily", query="q")
    assert found["answer"] == "42"
    assert found["pages"] == [{"title": "T", "url": "https://example.org", "text": "c"}] * 8
    (asked,) = service.asked
    assert (asked.method, asked.path, asked.headers["authorization"]) == ("POST", "/search", "Bearer tvly-k")
    assert json.loads(asked.body) == {"query": "q", "max_results": 8, "include_answer": True}


async def test_perplexity_answers_with_its_sources(call: Caller, service: Service) -> None:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "It rains [1]."}}
    sources = [{"title": "T", "url": "https://example.org", "date": "2026-01-01"}]
    service.answer = {"id": "1", "model": "sonar", "choices": [choice], "search_results": sources}
    call.environ |= {"CALLBOARD_PERPLEXITY_URL": service.url, "PERPLEXITY_API_KEY": "pplx-k"}
    found = await call("web_search_perplexity", query="q")
    assert found == {"answer": "It rains [1].", "pages": [{"title": "T", "url": "https://example.org"}]}
    service.answer = {"choices": [choice], "citations": ["https://example.org"]}
    assert (await call("web_search_perplexity", query="q"))["pages"] == [{"title": "", "url": "https://example.org"}]
    assert json.loads(service.asked[0].body)["model"] == "sonar"


async def test_wolframalpha_answers_or_says_what_it_would_take(call: Caller, service: Service) -> None:
    service.answer = b'Query:\n"2+2"\n\nInput:\n2 + 2\n\nResult:\n4\n'
    call.environ |= {"CALLBOARD_WOLFRAMALPHA_URL": service.url, "WOLFRAM_API_ID": "ID-1"}
    assert "Result:\n4" in (await call("search_wolframalpha", query="2+2"))["output"]
    assert service.asked[0].query == {"input": ["2+2"], "appid": ["ID-1"]}
    service.status, service.answer = 501, b"Wolfram|Alpha could not understand: blorb. Things to try instead: ..."
    with pytest.raises(ToolFailed) as failed:
        await call("search_wolframalpha", query="blorb")
    assert failed.value.stderr.startswith("Wolfram Alpha answered 501: Wolfram|Alpha could not understand")


async def test_twilio_sends_a_message(call: Caller, service: Service) -> None:
    service.status, service.answer = 201, {"sid": "SM1", "status": "queued", "error_code": None, "body": "hi"}
    call.environ |= {
        "CALLBOARD_TWILIO_URL": service.url,
        "TWILIO_ACCOUNT_SID": "AC1",
        "TWILIO_AUTH_TOKEN": "t0ken",
        "TWILIO_FROM_NUMBER": "+15005550006",
    }
    assert await call("send_twilio", to_number="+4930123", message="hi & bye") == {"id": "SM1", "status": "queued"}
    (asked,) = service.asked
    assert (asked.method, asked.path) == ("POST", "/2010-04-01/Accounts/AC1/Messages.json")
    assert asked.headers["authorization"] == basic("AC1:t0ken")
    assert parse_qs(asked.body.decode()) == {"From": ["+15005550006"], "To": ["+4930123"], "Body": ["hi & bye"]}
    await call("send_twilio", to_number="whatsapp:+4930123", message="hi")
    assert parse_qs(service.asked[1].body.decode())["From"] == ["whatsapp:+15005550006"]
    error = {"code": 21211, "message": "The 'To' number x is not a valid phone number.", "status": 400}
    service.status, service.answer = 400, error
    with pytest.raises(ToolFailed) as failed:
        await call("send_twilio", to_number="x", message="hi")
    assert "not a valid phone number" in failed.value.stderr
    assert "t0ken" not in failed.value.stderr


async def test_jira_is_searched_written_to_and_commented_on(call: Caller, service: Service) -> None:
    fields = {"summary": "S", "status": {"name": "To Do"}, "assignee": None, "priority": {"name": "High"}}
    more = {"issuetype": {"name": "Bug"}, "updated": "2026-01-01T00:00:00.000+0000"}
    service.answer = {"isLast": True, "issues": [{"id": "1", "key": "ABC-1", "fields": {**fields, **more}}]}
    call.environ |= {"JIRA_URL": service.url + "/", "JIRA_API_TOKEN": "tok", "JIRA_LOGIN": "me@example.org"}
    (issue,) = await call("query_jira_issues", jql_query="project = ABC")
    assert issue == {
        "key": "ABC-1",
        "summary": "S",
        "status": "To Do",
        "assignee": None,
        "priority": "High",
        "issuetype": "Bug",
        "updated": more["updated"],
    }
    assert service.asked[-1].path == "/rest/api/3/search/jql"
    assert service.asked[-1].headers["authorization"] == basic("me@example.org:tok")
    del call.environ["JIRA_LOGIN"]
    await call("query_jira_issues", jql_query="x")
    assert service.asked[-1].path == "/rest/api/2/search"
    assert service.asked[-1].headers["authorization"] == "Bearer tok"
    service.status, service.answer = 201, {"id": "10000", "key": "ABC-24", "self": "..."}
    made = await call("create_jira_issue", project="ABC", summary="S", description="d", issue_type="Bug")
    assert made == {"key": "ABC-24", "url": f"{service.url}/browse/ABC-24"}
    sent = {"project": {"key": "ABC"}, "summary": "S", "issuetype": {"name": "Bug"}, "description": "d"}
    assert json.loads(service.asked[-1].body) == {"fields": sent}
    assert await call("comment_jira_issue", issue="ABC-24", comment="c") == {"id": "10000"}
    assert service.asked[-1].path == "/rest/api/2/issue/ABC-24/comment"
    for issue_key in ("../x", "ABC", "ABC-1/x"):
        with pytest.raises(ToolFailed):
            await call("comment_jira_issue", issue=issue_key, comment="c")
    call.environ["JIRA_URL"] = "http://jira.example.org"
    with pytest.raises(ToolFailed) as failed:
        await call("query_jira_issues", jql_query="x")
    assert "https://" in failed.value.stderr


async def test_the_weather_comes_in_python_as_it_does_built_in(call: Caller, service: Service) -> None:
    service.answer = "Paris: 🌦 +11°C\n".encode()
    call.environ["CALLBOARD_WEATHER_URL"] = service.url
    folder = call.base / "functions" / "tools"
    folder.mkdir(parents=True)
    shutil.copy(TOOLS / "get_current_weather.py", folder)
    assert (await call("get_current_weather", location="New York"))["output"] == "Paris: 🌦 +11°C"
    assert service.asked[0].path == "/New%20York"


def test_the_weather_in_typescript_declares_what_the_python_file_does() -> None:
    pytest.importorskip("tree_sitter_typescript")
    from callboard.actors.work.tools.declare.read import read_tools

    (ts,), (py,) = (read_tools(TOOLS / f"get_current_weather{end}", agent=False).declarations for end in (".ts", ".py"))
    assert (ts.description, ts.parameters["required"]) == (py.description, py.parameters["required"])


# --- mail


class Mail:
    """An SMTP server on loopback that takes one mail."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.lines: list[str] = []
        self._refuses = refuses
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        link, _ = self._socket.accept()
        with link, link.makefile("rwb") as file:
            in_data = False

            def say(text: str) -> None:
                file.write(text.encode() + b"\r\n")
                file.flush()

            say("220 mail.test ESMTP")
            for raw in file:
                line = raw.decode().rstrip("\r\n")
                self.lines.append(line)
                word = line.upper()
                if in_data:
                    if line == ".":
                        in_data = False
                        say("250 2.0.0 Ok: queued")
                elif word.startswith("EHLO"):
                    say("250-mail.test\r\n250 AUTH PLAIN")
                elif word.startswith("AUTH"):
                    say("235 2.7.0 Authentication successful")
                elif word.startswith("RCPT") and self._refuses:
                    say("550 5.1.1 No such user")
                elif word == "DATA":
                    in_data = True
                    say("354 End data with <CR><LF>.<CR><LF>")
                elif word == "QUIT":
                    say("221 2.0.0 Bye")
                    return
                else:
                    say("250 2.1.0 Ok")

    def close(self) -> None:
        self.thread.join(10)
        self._socket.close()


async def test_mail_goes_out_by_smtp(call: Caller) -> None:
    server = Mail()
    call.environ |= {
        "EMAIL_SMTP_ADDR": f"smtp://127.0.0.1:{server.port}",
        "EMAIL_SMTP_USER": "me@example.org",
        "EMAIL_SMTP_PASS": "pa55",
        "EMAIL_SENDER_NAME": "Me",
    }
    told = await call("send_mail", recipient="a@example.org, B <b@example.org>", subject="Hé", body="one\n.two")
    server.close()
    assert told["output"] == "sent to a@example.org, b@example.org"
    assert "AUTH PLAIN " + base64.b64encode(b"\0me@example.org\0pa55").decode() in server.lines
    # Python 3.13 writes RCPT in capitals.
    assert {"rcpt to:<a@example.org>", "rcpt to:<b@example.org>"} <= {line.lower() for line in server.lines}
    assert "From: Me <me@example.org>" in server.lines
    assert "..two" in server.lines


async def test_mail_that_is_refused_or_would_carry_headers_says_so(call: Caller) -> None:
    server = Mail(refuses=True)
    call.environ |= {"EMAIL_SMTP_ADDR": f"smtp://127.0.0.1:{server.port}", "EMAIL_SENDER": "me@example.org"}
    with pytest.raises(ToolFailed) as failed:
        await call("send_mail", recipient="a@example.org", subject="s", body="b")
    server.close()
    assert "does not take mail for a@example.org" in failed.value.stderr
    for recipient, subject in (("nobody", "s"), ("a@example.org", "s\nBcc: x@example.org"), ("", "s")):
        with pytest.raises(ToolFailed):
            await call("send_mail", recipient=recipient, subject=subject, body="b")


# --- all of them

NEEDED = {
    "web_search_jina": ("JINA_API_KEY", {"query": "q"}),
    "web_search_tavily": ("TAVILY_API_KEY", {"query": "q"}),
    "web_search_perplexity": ("PERPLEXITY_API_KEY", {"query": "q"}),
    "search_wolframalpha": ("WOLFRAM_API_ID", {"query": "q"}),
    "send_twilio": ("TWILIO_ACCOUNT_SID", {"to_number": "+1", "message": "m"}),
    "send_mail": ("EMAIL_SMTP_USER", {"recipient": "a@b.c", "subject": "s", "body": "b"}),
    "query_jira_issues": ("JIRA_URL", {"jql_query": "q"}),
    "create_jira_issue": ("JIRA_URL", {"project": "A", "summary": "s"}),
    "comment_jira_issue": ("JIRA_URL", {"issue": "A-1", "comment": "c"}),
}


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.sample(3)
async def test_a_key_that_is_missing_is_named(call: Caller, name: str) -> None:
    variable, arguments = NEEDED[name]
    with pytest.raises(ToolFailed) as failed:
        await call(name, **arguments)
    assert f"needs {variable}" in failed.value.stderr
    assert ".env" in failed.value.stderr
    assert "Traceback" not in failed.value.stderr


async def test_a_redirect_is_not_followed_with_the_key(call: Caller, service: Service) -> None:
    service.status, service.headers = 302, {"Location": f"{service.url}/elsewhere"}
    call.environ |= {"CALLBOARD_TAVILY_URL": service.url, "TAVILY_API_KEY": "k"}
    with pytest.raises(ToolFailed) as failed:
        await call("web_search_tavily", query="q")
    assert len(service.asked) == 1
    assert "Tavily answered 302" in failed.value.stderr


async def test_a_service_that_is_away_or_talks_nonsense_is_one_sentence(call: Caller, service: Service) -> None:
    call.environ |= {"CALLBOARD_TAVILY_URL": service.url, "TAVILY_API_KEY": "k"}
    service.answer = b"<html>"
    for said in ("Tavily sent an answer that is no JSON", "Tavily is not reachable: "):
        with pytest.raises(ToolFailed) as failed:
            await call("web_search_tavily", query="q")
        assert failed.value.stderr.startswith(said)
        call.environ["CALLBOARD_TAVILY_URL"] = "http://127.0.0.1:9"


@pytest.mark.parametrize("name", WITH_ACCOUNTS)
async def test_what_sends_asks_first_also_as_a_file_of_the_users(call: Caller, name: str) -> None:
    expected = "ask" if name in SENDING else "allow"
    assert Permissions().verdict(call.tool(name), {}) == expected
    folder = call.base / "functions" / "tools"
    folder.mkdir(parents=True)
    shutil.copy(TOOLS / f"{name}.py", folder)
    assert call.tool(name).origin == "file"
    assert Permissions().verdict(call.tool(name), {}) == expected


def test_all_means_none_of_them_unless_they_are_named_visible(tmp_path: Path) -> None:
    registry = ToolRegistry(tmp_path, Settings(), {})
    assert not set(WITH_ACCOUNTS) & set(registry.spelled_out(["all"]))
    assert set(WITH_ACCOUNTS) <= set(registry.global_names())
    registry = ToolRegistry(tmp_path, Settings(visible_tools=("send_mail.sh", "fs_cat")), {})
    assert registry.spelled_out(["all"]) == ["fs_cat", "send_mail"]
