"""`callboard auth` as processes, against a local authorization server: with a terminal, a browser, neither."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from support.auth_server import CLIENT, LocalAuthServer, auth_server
from support.fake_models import FakeModels, Reply, Request
from support.messages import fragment, has_message
from support.screen import Screen
from support.starter import CALLBOARD
from support.waiting import PATIENCE

COMMAND = CALLBOARD
ADDRESS = r"(http://127\.0\.0\.1:\d+/authorize\?\S+)\s"

NOTHING = "no client of config.yaml has `auth: oauth`, and no MCP server has a sign-in\n"

Callboard = Callable[..., "tuple[int, str, str]"]


class Place:
    """A config directory with a client that people sign in for, and the server for it."""

    def __init__(self, server: LocalAuthServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.state = folder / "state"
        (folder / "config").mkdir()
        self.configure()

    def configure(self, api_base: str = "http://127.0.0.1:1/v1", **oauth: object) -> None:
        """Write config.yaml."""
        paths = {"authorization_url": "authorize", "token_url": "token", "revocation_url": "revoke"}
        there = {name: f"{self.server.url}/{path}" for name, path in paths.items()}
        entry: dict[str, Any] = {"type": "claude", "name": "lab", "auth": "oauth", "api_base": api_base}
        entry |= {"models": [{"name": "m"}], "oauth": {"client_id": CLIENT, "scopes": ["chat"], **there, **oauth}}
        keyed = {"type": "claude", "name": "keyed", "api_key": "sk-test"}
        (self.folder / "config" / "config.yaml").write_text(json.dumps({"clients": [entry, keyed]}))

    @property
    def environ(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
        own = {"CALLBOARD_CONFIG_DIR": str(self.folder / "config"), "XDG_STATE_HOME": str(self.state)}
        return {**kept, **own, "TERM": "xterm-256color", "NO_COLOR": "1"}

    async def run(self, *arguments: str, **more: str) -> tuple[int, str, str]:
        """A command without a terminal: exit code, stdout, stderr."""
        done = await trio.run_process(
            [*COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=self.environ | more,
        )
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    async def begin(self, nursery: trio.Nursery, *arguments: str, screen: Screen | None = None) -> trio.Process:
        """A command that goes on, at a terminal if there is one."""
        process: trio.Process = await nursery.start(
            lambda task_status: trio.run_process(
                [*COMMAND, *arguments],
                stdin=screen.slave if screen else subprocess.DEVNULL,
                stderr=screen.slave if screen else subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=self.environ,
                check=False,
                task_status=task_status,
            )
        )
        return process

    async def sign_in(self, nursery: trio.Nursery, *arguments: str) -> None:
        """A person signs in."""
        process = await self.begin(nursery, "auth", "login", "lab", "--no-browser", *arguments)
        await self.server.browser(await address(process))
        assert await process.wait() == 0

    def files(self) -> list[Path]:
        return sorted((self.state / "callboard" / "oauth" / "models").glob("*.json"))


async def address(process: trio.Process) -> str:
    """The page that a command names on stderr."""
    text, stream = "", process.stderr
    assert stream is not None
    with trio.fail_after(PATIENCE):
        while not (found := re.search(ADDRESS, text)):
            piece = await stream.receive_some()
            assert piece, text
            text += bytes(piece).decode()
    return found[1]


async def everything(stream: trio.abc.ReceiveStream | None) -> str:
    assert stream is not None
    return b"".join([piece async for piece in stream]).decode()


@pytest.fixture
async def place(nursery: trio.Nursery, tmp_path: Path) -> Place:
    return Place(await auth_server(nursery), tmp_path)


async def test_a_person_signs_in_through_the_browser_and_the_token_is_kept(place: Place, nursery: trio.Nursery) -> None:
    process = await place.begin(nursery, "auth", "login", "--no-browser")
    page = await place.server.browser(await address(process))
    assert b"You can close this page" in page
    assert has_message(
        await everything(process.stdout), "cli.actions.auth.sign_in_to_client.by_hand", scopes="client 'lab' for chat"
    )
    assert await process.wait() == 0
    (file,) = place.files()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    code, out, _ = await place.run("auth", "status", "-o", "json")
    (row,) = json.loads(out)["sign_ins"]
    assert code == 0
    assert (row["name"], row["signed_in"], row["refreshes"], row["scopes"]) == ("lab", True, True, ["chat"])
    assert 3500 < row["seconds_left"] <= 3600
    assert "s3cret" not in out
    code, out, err = await place.run("auth", "logout", "lab")
    assert (code, out, err) == (0, "signed out of client 'lab'\n", "")
    assert place.files() == []
    assert place.server.grants[0].revoked
    assert (await place.run("auth", "logout", "lab"))[1] == "not signed in to client 'lab'\n"


async def test_a_browser_here_is_opened(place: Place, nursery: trio.Nursery, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    said: list[tuple[int, str, str]] = []

    async def login() -> None:
        said.append(await place.run("auth", "login", "lab", BROWSER=str(browser)))

    nursery.start_soon(login)
    with trio.fail_after(PATIENCE):
        while not (tmp_path / "opened").exists() or not (url := (tmp_path / "opened").read_text().strip()):
            await trio.sleep(0.05)
        await place.server.browser(url)
        while not said:
            await trio.sleep(0.05)
    code, out, err = said[0]
    assert (code, out) == (0, fragment("front.chat.commands.credentials._authenticate.2", name="lab' for chat\n…"))
    assert has_message(err, "cli.actions.auth._SigningIn.in_browser.3", who="client 'lab'")


async def test_at_a_terminal_without_a_browser_the_address_is_pasted(
    place: Place, nursery: trio.Nursery, screen: Screen
) -> None:
    process = await place.begin(nursery, "auth", "login", "lab", screen=screen)
    await screen.shows(r"address\s+that\s+it\s+shows")
    found = re.search(ADDRESS, screen.text)
    assert found
    screen.press("https://elsewhere.example/?code=x&state=wrong\r")
    await screen.shows(r"another sign-in attempt")
    screen.press(f"{place.server.redirect(found[1])}\r")
    assert await everything(process.stdout) == "signed in to client 'lab' for chat\n"
    assert await process.wait() == 0
    assert "s3cret" not in screen.text


async def test_a_code_that_a_page_shows_is_pasted(place: Place, nursery: trio.Nursery, screen: Screen) -> None:
    place.configure(redirect_uri="https://id.example/code", body="json")
    process = await place.begin(nursery, "auth", "login", "lab", "--no-browser", screen=screen)
    await screen.shows(r"Paste the code that the page shows")
    found = re.search(ADDRESS, screen.text)
    assert found
    screen.press(f"{place.server.approve(found[1])}\r")
    assert await process.wait() == 0
    assert await everything(process.stdout) == "signed in to client 'lab' for chat\n"


async def test_who_leaves_at_the_terminal_leaves_nothing_open(
    place: Place, nursery: trio.Nursery, screen: Screen
) -> None:
    process = await place.begin(nursery, "auth", "login", "lab", screen=screen)
    await screen.shows(r"address\s+that\s+it\s+shows")
    port = re.search(r"browser at http://127\.0\.0\.1:(\d+)", screen.text)
    assert port
    screen.press("/decline\r")
    assert await process.wait() == 3
    with pytest.raises(OSError, match=r"all attempts to connect|refused"):
        await trio.open_tcp_stream("127.0.0.1", int(port[1]))
    assert place.files() == []


@pytest.mark.parametrize("terminal", [True, False])
async def test_an_interrupt_leaves_nothing_open(
    place: Place, nursery: trio.Nursery, screen: Screen, terminal: bool
) -> None:
    at = screen if terminal else None
    process = await place.begin(nursery, "auth", "login", "lab", "--no-browser", screen=at)
    if terminal:
        await screen.shows(r"address\s+that\s+it\s+shows")
        text = screen.text
    else:
        text = await address(process) + " "
    port = re.search(r"127\.0\.0\.1(?::|%3A)(\d+)(?:/|%2F)callback", text)
    assert port
    process.send_signal(signal.SIGINT)
    with trio.fail_after(PATIENCE):
        assert await process.wait() == 130
    with pytest.raises(OSError, match=r"all attempts to connect|refused"):
        await trio.open_tcp_stream("127.0.0.1", int(port[1]))
    assert place.files() == []


async def test_another_device_signs_in(place: Place, nursery: trio.Nursery) -> None:
    place.configure(device_url=f"{place.server.url}/device")
    place.server.device_says = ["authorization_pending", "authorization_pending"]
    code, out, err = await place.run("auth", "login", "lab", "--device")
    assert (code, out) == (0, fragment("front.chat.commands.credentials._authenticate.2", name="lab' for chat\n…"))
    assert f"{place.server.url}/activate?user_code=WDJB-MJHT" in err
    assert has_message(err, "cli.actions.auth._SigningIn.on_another_device.2", user_code="WDJB-MJHT", lifetime="10m")


async def test_more_scopes_are_asked_for(place: Place, nursery: trio.Nursery) -> None:
    await place.sign_in(nursery, "--scope", "admin billing", "--scope", "chat")
    assert (await place.run("auth", "status"))[1].split()[:5] == ["lab", "signed", "in", "chat", "admin"]


@pytest.mark.parametrize(
    ("arguments", "configured", "words"),
    [
        ((), {}, "signing in to client 'lab' needs a browser or a terminal, and there is neither"),
        (
            ("--no-browser",),
            {"redirect_uri": "https://id.example/code"},
            "needs a browser or a terminal, and there is neither",
        ),
        (
            (),
            {"authorization_url": "", "device_url": "http://127.0.0.1:1/d"},
            "needs a terminal, and there is none; to sign in on another device: --device",
        ),
    ],
)
async def test_where_no_person_is_the_words_are_clear_and_the_code_is_5(
    place: Place, arguments: tuple[str, ...], configured: dict[str, str], words: str
) -> None:
    place.configure(**configured)
    code, out, err = await place.run("auth", "login", "lab", *arguments)
    assert (code, out) == (5, "")
    assert words in err
    assert err.count("\n") == 1
    assert place.server.requests == []


async def test_a_person_says_no(place: Place, nursery: trio.Nursery) -> None:
    process = await place.begin(nursery, "auth", "login", "lab", "--no-browser")
    await place.server.browser(await address(process), error="access_denied")
    assert "the person said no: access_denied" in await everything(process.stderr)
    assert await process.wait() == 3
    assert place.files() == []


async def test_a_port_that_is_taken_is_named(place: Place) -> None:
    place.configure(redirect_uri=f"{place.server.url}/callback")
    code, _, err = await place.run("auth", "login", "lab", "--no-browser")
    assert code == 3
    assert has_message(err, "io.oauth.authorization._listeners", port=place.server.port, address="127.0.0.1")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("login", "lba"), 2, fragment("work.models.signed_in.client_to_sign_in.4", name="lba")),
        (("login", "keyed"), 3, "client 'keyed' in "),
        (("logout", "nothing"), 2, fragment("work.models.signed_in.client_to_sign_in.4", name="nothing")),
        (("status", "nothing"), 2, fragment("work.models.signed_in.client_to_sign_in.4", name="nothing")),
        (("status", "lab"), 3, ""),
        (("login", "lab", "--device"), 3, "device_url"),
    ],
)
async def test_wrong_calls(place: Place, arguments: tuple[str, ...], code: int, words: str) -> None:
    ended, _, err = await place.run("auth", *arguments)
    assert ended == code
    assert words in err


async def test_status_says_what_to_do(place: Place, nursery: trio.Nursery) -> None:
    assert has_message((await place.run("auth", "status"))[1], "cli.actions.auth.in_words")
    place.server.gives_refresh, place.server.lifetime = False, 7200.0
    await place.sign_in(nursery)
    assert re.search(r"lab +signed in for (2h00m|1h59m) +chat", (await place.run("auth", "status"))[1])
    place.files()[0].chmod(0o644)
    assert "mode 644" in (await place.run("auth", "status"))[1]
    assert (await place.run("auth", "logout", "lab"))[1] == "signed out of client 'lab'\n"


async def test_a_client_that_left_config_yaml_can_be_signed_out(place: Place, nursery: trio.Nursery) -> None:
    await place.sign_in(nursery)
    (place.folder / "config" / "config.yaml").write_text("{}")
    assert (await place.run("auth", "status"))[1] == NOTHING
    assert (await place.run("auth", "logout", "lab"))[1] == "signed out of client 'lab'\n"
    assert place.files() == []


@pytest.mark.parametrize("path", ["http://127.0.0.1:1/revoke", "{url}/nothing"])
async def test_a_server_that_is_away_does_not_keep_anybody_signed_in(
    place: Place, nursery: trio.Nursery, path: str
) -> None:
    await place.sign_in(nursery)
    place.configure(revocation_url=path.format(url=place.server.url))
    code, out, _ = await place.run("auth", "logout", "lab")
    assert code == 0
    assert out.startswith("signed out of client 'lab'; its token could not be revoked: ")
    assert place.files() == []


async def test_names_are_completed(place: Place) -> None:
    words = {"_CALLBOARD_COMPLETE": "bash_complete", "COMP_WORDS": "callboard auth login l", "COMP_CWORD": "3"}
    assert (await place.run(**words))[1] == "plain,lab\n"


async def test_a_run_before_and_after_signing_in(place: Place, nursery: trio.Nursery, fake_model: FakeModels) -> None:
    def guarded(request: Request) -> Reply:
        good = place.server.is_good(request.headers["authorization"].removeprefix("Bearer "))
        return Reply("hello back") if good else Reply(status=401, error="token expired")

    fake_model.answer_with(guarded)
    place.configure(f"{fake_model.url}/v1")
    code, out, err = await place.run("ask", "-m", "lab:m", "hello")
    assert (code, out) == (3, "")
    assert "callboard: client 'lab': not signed in; sign in: callboard auth login lab\n" in err
    assert "lab (not signed in): lab:m" in (await place.run("models", "list"))[1]
    await place.sign_in(nursery)
    assert "lab (signed in): lab:m" in (await place.run("models", "list"))[1]
    assert "LAB_API_KEY" not in (await place.run("doctor"))[1]
    place.server.expire_all()
    code, out, err = await place.run("ask", "-m", "lab:m", "hello")
    assert (code, out) == (0, "hello back\n")
    place.server.revoke_all()
    code, out, err = await place.run("ask", "-m", "lab:m", "hello")
    assert (code, out) == (3, "")
    assert err.rstrip().endswith("sign in: callboard auth login lab")
    assert "s3cret" not in out + err
