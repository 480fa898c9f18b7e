"""The way out of a sandbox whose network is a list of hosts: who may go where, and what a person is asked."""

from __future__ import annotations

import http.server
import os
import threading
from collections.abc import Iterator

import pytest
from support.fake_models import Reply
from support.messages import has_message
from support.repository import Repository
from support.sandbox_asked import told
from support.sandbox_surroundings import need

from callboard.actors.work.sandbox.grants import means_grant
from callboard.actors.work.sandbox.hosts import matches_host, means, named
from callboard.actors.work.tools.permissions import StoredAnswers
from callboard.protocol.settings.read import read_settings

FETCH = (
    "import sys, urllib.request as u\n"
    "for url in sys.argv[1:]:\n"
    "    try: print(u.urlopen(url, timeout=20).read().decode())\n"
    "    except OSError as error: print(error, error.read().decode() if hasattr(error, 'read') else '')\n"
)


class Site:
    """A server of this machine that counts its visitors."""

    def __init__(self) -> None:
        self.visits: list[str] = []
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.visits.append(self.path)
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"the page")

            def log_message(self, *_: object) -> None:
                """Nothing is printed."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def url(self, host: str = "127.0.0.1", path: str = "/") -> str:
        return f"http://{host}:{self.port}{path}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


@pytest.fixture
def project(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    need("bubblewrap", monkeypatch)
    repository.agent("global_tools: [execute_command]")
    (repository.root / "fetch.py").write_text(FETCH)
    return repository


def fetch(*urls: str) -> Reply:
    return Reply(calls=[("execute_command", {"command": " ".join(["python3 fetch.py", *urls])})])


async def test_a_host_of_the_list_is_reached_and_no_other(project: Repository, site: Site) -> None:
    project.settings(sandbox={"profile": "workspace", "network": [f"127.0.0.1:{site.port}"]})
    (said,) = await told(project, fetch(site.url(), site.url("localhost")), sandbox=None)
    assert "the page" in said
    assert "403" in said
    assert has_message(said, "work.sandbox.grants.Grants.asked")
    assert site.visits == ["/"]


async def test_who_passes_by_the_proxy_or_has_no_password_reaches_nothing(project: Repository, site: Site) -> None:
    project.settings(sandbox={"profile": "workspace", "network": [f"127.0.0.1:{site.port}"]})
    straight = f"env -u http_proxy -u HTTP_PROXY -u all_proxy -u ALL_PROXY python3 fetch.py {site.url()}"
    nameless = f"http_proxy=http://${{http_proxy#*@}} python3 fetch.py {site.url()}"
    made_up = f"http_proxy=http://callboard:guess@${{http_proxy#*@}} python3 fetch.py {site.url()}"
    calls = [Reply(calls=[("execute_command", {"command": each})]) for each in (straight, nameless, made_up)]
    said = await told(project, *calls, sandbox=None)
    assert "refused" in said[0]
    assert "407" in said[1]
    assert "407" in said[2]
    assert site.visits == []


@pytest.mark.parametrize(
    ("answers", "visits", "questions"),
    [(("yes",), 2, 2), (("run",), 2, 1), (("always",), 2, 1), (("no",), 0, 2), (("not that one", "yes"), 1, 2)],
)
@pytest.mark.sample(2)
async def test_a_person_is_asked_about_another(
    project: Repository, site: Site, answers: tuple[str, ...], visits: int, questions: int
) -> None:
    said = await told(project, fetch(site.url(), site.url(path="/again")), fetch(site.url()), person=answers)
    asked = said[2:]
    assert len(asked) == questions
    assert f"Let execute_command reach 127.0.0.1:{site.port}?" in asked[0]
    assert has_message(asked[0], "work.sandbox.grants._inside.2")
    calls = visits + (1 if visits == 2 else 0)  # the first call asks for two pages, on one answer
    assert len(site.visits) == calls
    if answers == ("no",):
        assert has_message(said[0], "work.sandbox.grants.Grants.asked.2")


AT_ONCE = """
import sys, threading, urllib.request as u
def fetch():
    try: u.urlopen(sys.argv[1], timeout=60).read()
    except OSError as error: print(error)
threads = [threading.Thread(target=fetch) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


async def test_connections_that_waited_for_a_no_ask_no_question_of_their_own(project: Repository, site: Site) -> None:
    (project.root / "at_once.py").write_text(AT_ONCE)
    call = Reply(calls=[("execute_command", {"command": f"python3 at_once.py {site.url()}"})])
    said, *asked = await told(project, call, person=("no",))
    assert len(asked) == 1
    assert said.count("403") == 8
    assert site.visits == []


async def test_always_is_for_good_in_this_directory(project: Repository, site: Site) -> None:
    assert len(await told(project, fetch(site.url()), person=("always",))) == 2
    assert len(await told(project, fetch(site.url()), person=("no",))) == 1
    assert len(site.visits) == 2
    kept = StoredAnswers(project.root, {"XDG_STATE_HOME": callboard_state()})
    assert [(each.tool, each.subject) for each in kept.all()] == [
        ("execute_command", f"reach 127.0.0.1:{site.port}"),
    ]


def test_a_grant_with_a_pattern_means_hosts_of_the_web_and_never_all() -> None:
    assert means_grant("reach *.pypi.org", "reach files.pypi.org")
    assert means_grant("reach *.pypi.org:8080", "reach files.pypi.org:8080")
    assert not means_grant("reach *.pypi.org", "reach files.pypi.org:22")
    assert not means_grant("reach *", "reach pypi.org")
    assert not means_grant("reach *.org", "reach *")
    assert not means_grant("have *.org", "reach pypi.org")
    assert not means_grant("write /tmp/*", "write /tmp/x")


def callboard_state() -> str:
    return os.environ["XDG_STATE_HOME"]


async def test_rules_of_hosts_come_first_and_yes_is_no_answer(project: Repository, site: Site) -> None:
    project.settings(permissions={"host:127.0.0.1": "deny"})
    (said,) = await told(project, fetch(site.url()), person=("yes",))
    assert "permissions deny" in said
    project.settings(permissions={"host:127.0.0.1": "allow"})
    (said,) = await told(project, fetch(site.url()))
    assert "the page" in said
    project.settings(permissions={})
    (said,) = await told(project, fetch(site.url()), yes=True)
    assert has_message(said, "work.sandbox.grants.Grants.asked")
    assert len(site.visits) == 1


@pytest.mark.parametrize("host", ["169.254.169.254", "[::ffff:169.254.169.254]", "[fd00:ec2::254]", "0xA9FEA9FE"])
@pytest.mark.sample(2)
async def test_where_clouds_keep_credentials_nobody_goes(project: Repository, host: str) -> None:
    project.settings(sandbox={"profile": "workspace", "network": ["*"]})
    said = (await told(project, fetch(f"http://{host}/latest"), person=("yes",), sandbox=None))[0]
    assert "credentials" in said


async def test_a_pattern_means_no_private_address(project: Repository, site: Site) -> None:
    project.settings(sandbox={"profile": "workspace", "network": [f"*:{site.port}", "*"]})
    (said,) = await told(
        project, fetch(site.url(), site.url("localhost"), site.url("[::ffff:127.0.0.1]")), sandbox=None
    )
    assert said.count("private address") == 3
    assert site.visits == []


async def test_off_is_off_and_asks_nobody(project: Repository, site: Site) -> None:
    project.settings(sandbox={"profile": "workspace", "network": "off"})
    (said,) = await told(project, fetch(site.url()), person=("yes",), sandbox=None)
    assert "unreachable" in said or "refused" in said
    assert site.visits == []


async def test_https_goes_through_a_tunnel(project: Repository, site: Site) -> None:
    project.settings(sandbox={"profile": "workspace", "network": [f"127.0.0.1:{site.port}"]})
    tunnelled, other = f"curl -s -p {site.url(path='/tunnelled')}", f"curl -s -p {site.url('localhost')}"
    command = f"{tunnelled}; {other} || echo kept out"
    (said,) = await told(project, Reply(calls=[("execute_command", {"command": command})]), sandbox=None)
    assert "the page" in said
    assert "kept out" in said
    assert site.visits == ["/tunnelled"]


ODD = (
    b"CONNECT a\0b:443 HTTP/1.1",
    b"CONNECT [::1:443 HTTP/1.1",
    b"CONNECT example.com:99999 HTTP/1.1",
    b"CONNECT " + b"a" * 300 + b".example:443 HTTP/1.1",
    b"CONNECT \xff\xfe:443 HTTP/1.1",
    b"GET http://[fe80::1%25lo]/ HTTP/1.1",
    b"GET ftp://example.com/ HTTP/1.1",
    b"GET / HTTP/1.1",
    b"HELLO",
    b"\x16\x03\x01" + bytes(100),
    b"CONNECT example.com:443 HTTP/1.1\r\nX: " + b"x" * 100_000,
)


async def test_whatever_a_process_says_to_the_proxy_it_goes_on(project: Repository, site: Site) -> None:
    project.settings(
        sandbox={"profile": "workspace", "network": [f"127.0.0.1:{site.port}", "*"]},
        permissions={"host:what:ever": "deny", "host:": "deny"},
    )
    (project.root / "odd.py").write_text(
        "import base64, os, socket, urllib.parse as u\n"
        "proxy = u.urlsplit(os.environ['HTTP_PROXY'])\n"
        "who = base64.b64encode(f'{proxy.username}:{proxy.password}'.encode())\n"
        f"for line in {ODD!r}:\n"
        "    with socket.create_connection((proxy.hostname, proxy.port), 20) as s:\n"
        "        s.sendall(line + b'\\r\\nProxy-Authorization: Basic ' + who + b'\\r\\n\\r\\n')\n"
        "        s.shutdown(socket.SHUT_WR)\n"
        "        try: print(s.recv(100)[:12])\n"
        "        except ConnectionResetError: print('reset')\n"
    )
    odd = Reply(calls=[("execute_command", {"command": "python3 odd.py"})])
    said = await told(project, odd, fetch(site.url()), sandbox=None)
    assert len(said[0].splitlines()) == len(ODD), said[0]
    assert " 200" not in said[0]
    assert said[1] == "the page\n"


def test_what_a_list_means() -> None:
    assert matches_host(["api.github.com"], "API.github.com.", 443)
    assert not matches_host(["api.github.com"], "api.github.com", 22)
    assert matches_host(["api.github.com:22"], "api.github.com", 22)
    assert matches_host(["*.pypi.org"], "files.pypi.org", 443)
    assert matches_host(["*.pypi.org"], "pypi.org", 80)
    assert not matches_host(["*.pypi.org"], "evilpypi.org", 443)
    assert matches_host(["[::1]:8080"], "::1", 8080)
    assert matches_host(["*"], "anything", 443)
    assert not named(["*"], "anything", 443)
    assert means("github.com", "github.com", 22)
    assert not means("github.com:22", "github.com", 443)


def test_what_is_no_host_is_told() -> None:
    text = "sandbox:\n  network: ['https://api.github.com/', ok.example]\n"
    _, problems = read_settings(text, "config.yaml", {})
    assert [(problem.line, problem.code) for problem in problems] == [(2, "wrong_value")]
    assert has_message(str(problems[0]), "protocol.sandbox")
