"""`callboard auth` with MCP servers: signing in by a browser, by hand, seeing it, and signing out."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from support.fake_models import Request
from support.mcp_protected import ProtectedServers, serve_protected
from support.messages import fragment, has_message
from support.waiting import PATIENCE

Callboard = Callable[..., "tuple[int, str, str]"]
Home = Callable[..., Path]

BROWSER = """\
import re, sys, urllib.request
page = urllib.request.urlopen(sys.argv[1]).read().decode()
urllib.request.urlopen(re.search(r'href="([^"]+)"', page)[1]).read()
"""


@pytest.fixture
def protected_servers() -> Iterator[ProtectedServers]:
    """Protected servers in a thread of its own, with a page where the person says yes by following the link."""
    towns: list[ProtectedServers] = []
    there, over = threading.Event(), trio.Event()
    tokens: list[trio.lowlevel.TrioToken] = []

    async def live() -> None:
        tokens.append(trio.lowlevel.current_trio_token())
        async with trio.open_nursery() as nursery:
            protected_servers = await serve_protected(nursery)

            async def page(request: Request) -> tuple[int, Any]:
                redirect = protected_servers.auth.redirect(protected_servers.auth.url + request.path)
                return 200, f'<a href="{redirect}">Yes</a>'.encode()

            protected_servers.auth.pages["/authorize"] = page
            towns.append(protected_servers)
            there.set()
            await over.wait()
            nursery.cancel_scope.cancel()

    thread = threading.Thread(target=trio.run, args=(live,))
    thread.start()
    assert there.wait(PATIENCE)
    yield towns[0]
    tokens[0].run_sync_soon(over.set)
    thread.join(10)


@pytest.fixture
def home(mcp_json: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, protected_servers: ProtectedServers) -> Home:
    """Writes mcp.json; tokens lie in the test's directory, and its browser says yes."""
    browser = tmp_path / "browser.py"
    browser.write_text(BROWSER)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("BROWSER", f"{sys.executable} {browser} %s")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setattr("webbrowser._tryorder", None)
    mcp_json(docs={"url": protected_servers.server.url})
    return mcp_json


def test_signing_in_is_seen_used_and_ended(
    callboard: Callboard, home: Home, protected_servers: ProtectedServers
) -> None:
    code, out, err = callboard("mcp", "call", "docs", "read")
    assert code == 3
    assert has_message(err, "work.mcp.auth.access.remedy", name="docs")
    assert callboard("auth", "status")[1] == "  mcp:docs  not signed in; callboard auth login mcp:docs\n"

    code, out, err = callboard("auth", "login", "mcp:docs", "--scope", "more")
    assert (code, out) == (0, "signed in to MCP server 'docs' for read more\n")
    assert f"{protected_servers.auth.url}/authorize?" in err
    assert callboard("mcp", "call", "docs", "read")[:2] == (0, "read: done\n")

    code, out, _ = callboard("auth", "status")
    assert (code, out.split()) == (0, ["mcp:docs", "signed", "in", "read", "more", protected_servers.auth.url])
    (row,) = json.loads(callboard("auth", "status", "mcp:docs", "-o", "json")[1])["sign_ins"]
    assert (row["signed_in"], row["refreshes"], row["scopes"], row["issuer"]) == (
        True,
        True,
        ["read", "more"],
        protected_servers.auth.url,
    )
    assert not any(
        text in json.dumps(row) for grant in protected_servers.auth.grants for text in (*grant.access, grant.refresh)
    )

    assert callboard("auth", "logout", "mcp:docs")[:2] == (0, "signed out of MCP server 'docs'\n")
    assert callboard("auth", "logout", "mcp:docs")[:2] == (
        0,
        fragment("cli.actions.auth.sign_out_of_server.3", who="MCP server 'docs'"),
    )
    assert callboard("mcp", "call", "docs", "read")[0] == 3


def test_what_a_tool_wants_more_is_seen(callboard: Callboard, home: Home, protected_servers: ProtectedServers) -> None:
    protected_servers.needs = {"write": {"files:write"}}
    assert callboard("auth", "login", "mcp:docs")[0] == 0
    code, _, err = callboard("mcp", "call", "docs", "write")
    assert code == 1
    assert has_message(err, "work.mcp.links.texts._unauthorized", named=" (files:write)")
    assert has_message(callboard("auth", "status")[1], "cli.actions.auth.in_words.2", row="files:write")
    assert has_message(
        callboard("auth", "login", "mcp:docs")[1], "cli.actions.auth.sign_in_to_server.by_hand", name="docs"
    )
    assert callboard("mcp", "call", "docs", "write")[:2] == (0, "write: done\n")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mcp:dcos", "did you mean 'docs'?"),
        ("mcp:local", "has no sign-in: Callboard starts it as a program"),
        ("mcp:mine", "the server's entry sets the header Authorization"),
    ],
)
def test_names_that_have_no_sign_in(
    callboard: Callboard, home: Home, protected_servers: ProtectedServers, name: str, words: str
) -> None:
    mine = {"url": protected_servers.server.url, "headers": {"Authorization": "Bearer x"}}
    home(docs={"url": protected_servers.server.url}, local={"command": "x"}, mine=mine)
    code, out, err = callboard("auth", "login", name)
    assert (code, out) == (2, "")
    assert words in err
    assert callboard("auth", "status")[1].split()[0] == "mcp:docs"


def test_no_person_there(
    callboard: Callboard, home: Home, protected_servers: ProtectedServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BROWSER")
    code, out, err = callboard("auth", "login", "mcp:docs")
    assert (code, out) == (5, "")
    assert has_message(err, "cli.actions.auth.sign_in_to_server.by_hand.person")
    assert callboard("auth", "login", "mcp:docs", "--device")[0] == 2
    assert callboard("auth", "status", "mcp:docs")[0] == 3


def test_a_service_that_is_not_safe_to_sign_in_to(
    callboard: Callboard, home: Home, protected_servers: ProtectedServers
) -> None:
    del protected_servers.published["code_challenge_methods_supported"]
    code, out, err = callboard("auth", "login", "mcp:docs")
    assert (code, out) == (3, "")
    assert has_message(err, "work.mcp.auth.sign_in.sign_in", name="docs")
    assert "PKCE" in err


def test_files_that_are_not_to_be_used_are_told(
    callboard: Callboard, home: Home, protected_servers: ProtectedServers, tmp_path: Path
) -> None:
    assert callboard("auth", "login", "mcp:docs")[0] == 0
    for file in (tmp_path / "state" / "callboard" / "oauth" / "mcp").iterdir():
        file.chmod(0o644)
    assert has_message(callboard("auth", "status")[1], "io.oauth.token.TokenFile._bytes.4")
