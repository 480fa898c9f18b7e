"""`callboard setup` at a real terminal, as a newcomer meets it: nothing is configured, and little is typed."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from support.fake_models import FakeModels, Reply
from support.messages import fragment, has_message
from support.starter import CALLBOARD
from support.waiting import PATIENCE

from callboard.actors.runs.setup.needed import needs_setup
from callboard.protocol.settings import read_settings

COMMAND = CALLBOARD
KEY = "sk-typed-0123456789abcdef"
DOWN = "\x1b[B"
READY = r"arrows or a number, then enter"
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[=>()][0-9A-B]?)")


class Person:
    """Looks at the terminal, and presses keys when a question can be answered."""

    def __init__(self, master: int) -> None:
        self._master = master
        self._read = 0
        self.raw = ""

    @property
    def shown(self) -> str:
        return _ESCAPES.sub("", self.raw).replace("\r", "")

    async def sees(self, pattern: str) -> None:
        """Wait until that is shown after what was waited for before."""
        with trio.fail_after(PATIENCE):
            while not (found := re.compile(pattern).search(self.shown, self._read)):
                await trio.lowlevel.wait_readable(self._master)
                try:
                    self.raw += os.read(self._master, 65536).decode()
                except OSError:  # the program has gone, and the terminal with it
                    raise AssertionError(f"{pattern} is not in {self.shown[self._read :]}") from None
        self._read = found.end()

    async def answers(self, question: str, keys: str, ready: str = READY) -> None:
        """Press keys once the question can be answered."""
        await self.sees(question)
        await self.sees(ready)
        self.press(keys)

    def press(self, keys: str) -> None:
        """Press keys now."""
        os.write(self._master, keys.encode())

    async def leaves(self, process: trio.Process) -> int:
        """Read on until the program has ended; its exit code."""

        async def read() -> None:
            while True:
                await trio.lowlevel.wait_readable(self._master)
                self.raw += os.read(self._master, 65536).decode()

        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                code = await process.wait()
                await trio.testing.wait_all_tasks_blocked(0.05)  # what it has written last is read
                nursery.cancel_scope.cancel()
        return code


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "config"


@pytest.fixture
def environ(tmp_path: Path, home: Path) -> dict[str, str]:
    """Nothing is set but where things are."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    places = {f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("CACHE", "STATE", "DATA")}
    nobody = {"OLLAMA_HOST": "127.0.0.1:1"}
    return kept | places | nobody | {"CALLBOARD_CONFIG_DIR": str(home), "TERM": "xterm", "COLUMNS": "200"}


async def test_a_newcomer_has_a_first_answer_after_two_keys_and_a_prompt(
    fake_model: FakeModels, environ: dict[str, str], home: Path
) -> None:
    fake_model.answer_with(lambda request: "ok" if "single word" in request.prompt else "Hello, newcomer.")
    async with at_a_terminal(with_key(environ, fake_model), "chat") as (person, process):
        await person.answers(r"Which model should answer\?", "\r")
        await person.answers(r"write .* and start", "\r")
        await person.sees(r"wrote .*config\.yaml")
        await person.sees(r"gpt-5\.4-mini")
        person.press("hello\r")
        await person.sees(r"Hello, newcomer\.")
        person.press("\x04")
        assert await person.leaves(process) == 0
    assert KEY not in person.raw
    assert (home / "config.yaml").is_file()


@pytest.mark.parametrize("arguments", [(), ("-m", "openai:gpt-4o-mini")])
async def test_a_conversation_begins_without_it_as_well(
    fake_model: FakeModels, environ: dict[str, str], home: Path, arguments: tuple[str, ...]
) -> None:
    fake_model.answer_with(lambda _: "Hello, newcomer.")
    async with at_a_terminal(with_key(environ, fake_model), "chat", *arguments) as (person, process):
        if not arguments:
            await person.answers(r"\d\. continue without a model; nothing is written", "\x04")
        await person.sees(r"gpt-4o-mini")
        person.press("hello\r")
        await person.sees(r"Hello, newcomer\.")
        person.press("\x04")
        assert await person.leaves(process) == 0
    assert not (home / "config.yaml").exists()


@asynccontextmanager
async def at_a_terminal(environ: dict[str, str], *arguments: str) -> AsyncIterator[tuple[Person, trio.Process]]:
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (40, 200))
    process = await trio.lowlevel.open_process(
        [*COMMAND, *(arguments or ("setup",))],
        env=environ,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        preexec_fn=partial(os.login_tty, os.dup(slave)),
    )
    os.close(slave)
    try:
        yield Person(master), process
    finally:
        with trio.move_on_after(PATIENCE, shield=True):
            if process.returncode is None:
                process.kill()
            await process.wait()
        os.close(master)


def with_key(environ: dict[str, str], server: FakeModels) -> dict[str, str]:
    return environ | {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.openai_base}


async def test_two_keys_and_a_prompt_are_enough_with_a_key_in_the_environment(
    fake_model: FakeModels, environ: dict[str, str], home: Path
) -> None:
    environ = with_key(environ, fake_model)
    assert needs_setup(home, environ)
    async with at_a_terminal(environ) as (person, process):
        await person.answers(r"Which model should answer\?", "\r")
        await person.answers(r"it answered in .*; 10 \+ 5 tokens", "\r")
        assert await person.leaves(process) == 0
    assert "openai:gpt-5.4-mini: window 400k; $0.75 in, $4.50 out (OPENAI_API_KEY)" in person.shown
    assert KEY not in person.raw
    file = home / "config.yaml"
    assert file.stat().st_mode & 0o777 == 0o600
    assert KEY not in file.read_text()
    settings, problems = read_settings(file.read_text(), str(file), environ)
    assert (settings.model, problems) == ("openai:gpt-5.4-mini", [])
    assert [path.name for path in home.iterdir()] == ["config.yaml"]
    assert not needs_setup(home, environ)
    assert fake_model.requests[0].headers["authorization"] == f"Bearer {KEY}"
    told = await trio.run_process([*COMMAND, "ask", "hello", "-q"], env=environ, capture_stdout=True, stdin=b"")
    assert told.stdout == b"ok\n"


async def test_a_server_here_is_found_and_its_first_model_to_chat_with_answers(
    fake_model: FakeModels, environ: dict[str, str], home: Path
) -> None:
    fake_model.models = ["nomic-embed-text:latest", "llama3.2:latest", "qwen3:8b"]
    environ["OLLAMA_HOST"] = f"127.0.0.1:{fake_model.port}"
    async with at_a_terminal(environ) as (person, process):
        await person.answers(r"1\. ollama:llama3.2:latest: free \(it answers at .*; 1 more\)", "\r")
        await person.answers(r"it answered", "\r")
        assert await person.leaves(process) == 0
    assert "model: ollama:llama3.2:latest" in (home / "config.yaml").read_text()
    assert fake_model.requests[0].json["model"] == "llama3.2:latest"


async def test_another_model_is_found_by_what_is_typed(
    fake_model: FakeModels, environ: dict[str, str], home: Path
) -> None:
    fake_model.models = ["llama3.2:latest", "qwen3:8b"]
    environ["OLLAMA_HOST"] = f"127.0.0.1:{fake_model.port}"
    async with at_a_terminal(environ) as (person, process):
        await person.answers(r"2\. another model", "2\r")
        await person.answers(r"Which model of Ollama\?", "8b\r", fragment("cli.render.menu.FilterMenu.visible_rows"))
        await person.answers(r"it answered", "\r")
        assert await person.leaves(process) == 0
    assert "model: ollama:qwen3:8b" in (home / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply(status=401, error="Incorrect API key provided"), "Incorrect API key"),
        (Reply(status=429, error="You exceeded your current quota, insufficient_quota"), "quota"),
        (Reply(status=404, error="The model `gpt-5.4-mini` does not exist"), "does not exist"),
    ],
)
async def test_what_is_wrong_is_said_and_leads_back(
    fake_model: FakeModels, environ: dict[str, str], home: Path, reply: Reply, told: str
) -> None:
    fake_model.script(reply)
    async with at_a_terminal(with_key(environ, fake_model)) as (person, process):
        await person.answers(r"Which model should answer\?", "\r")
        await person.sees(told)
        await person.answers(r"That did not work\. What now\?", "3\r")  # again
        await person.answers(r"it answered", "\r")
        assert await person.leaves(process) == 0
    assert (home / "config.yaml").is_file()
    assert KEY not in person.raw


async def test_a_server_that_has_gone_leads_back_to_the_choice(
    fake_model: FakeModels, environ: dict[str, str], home: Path
) -> None:
    environ |= {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
    async with at_a_terminal(environ) as (person, process):
        await person.answers(r"Which model should answer\?", "\r")
        await person.answers(r"That did not work\. What now\?", "\r")
        await person.answers(r"Which model should answer\?", "\x03")
        assert await person.leaves(process) == 130
    assert not home.exists()


async def test_any_address_is_taken_and_esc_goes_back_one_question(
    fake_model: FakeModels, environ: dict[str, str], home: Path
) -> None:
    fake_model.models = ["qwen3:8b", "llama3.2"]
    async with at_a_terminal(environ) as (person, process):
        await person.answers(r"Which model should answer\?", "1\r")
        await person.answers(r"Whose key is it\?", "\x1b", "type to filter")
        await person.answers(r"Which model should answer\?", "2\r")
        await person.answers(r"Where is the server\?", "127.0.0.1:1\r", r"  >")
        await person.answers(r"refused the connection(.|\n)*What now\?", "1\r")
        await person.answers(r"Where is the server\?", f"\x15127.0.0.1:{fake_model.port}\r", r"  >")
        await person.answers(r"has 2 models(.|\n)*Which model of server-", "\x1b", "type to filter")
        await person.answers(r"Where is the server\?", "\r", r"  >")
        await person.answers(r"Which model of server-", "llama\r", "type to filter")
        await person.answers(r"it answered", "\r")
        assert await person.leaves(process) == 0
    text = (home / "config.yaml").read_text()
    assert f"server-{fake_model.port}:llama3.2" in text
    assert f"api_base: http://127.0.0.1:{fake_model.port}/v1" in text


async def typed(person: Person) -> None:
    """Up to the question where it is kept."""
    await person.answers(r"No API key is set (.|\n)*Which model should answer\?", "1\r")
    await person.answers(r"Whose key is it\?", "openai\r", "type to filter")
    await person.answers(r"The key of openai \(it is not shown\)", f"{KEY}\r", r"  >")
    await person.sees(r"it answered")


async def test_a_secret_of_the_same_name_is_replaced_only_where_that_is_chosen(
    fake_model: FakeModels, environ: dict[str, str], home: Path
) -> None:
    pytest.importorskip("pyrage")
    environ["OPENAI_BASE_URL"] = fake_model.openai_base
    add = [*COMMAND, "vault", "add", "OPENAI_API_KEY"]
    await trio.run_process(add, env=environ, stdin=b"the-old-secret", capture_stdout=True)
    async with at_a_terminal(environ) as (person, process):
        await typed(person)
        await person.answers(r"the vault has a secret OPENAI_API_KEY already(.|\n)*1\. in .*\.env", "\r")
        await person.answers(r"Is that right\?", "\r")
        assert await person.leaves(process) == 0
    told = await trio.run_process(
        [*COMMAND, "vault", "get", "OPENAI_API_KEY"], env=environ, stdin=b"", capture_stdout=True
    )
    assert told.stdout.strip() == b"the-old-secret"


async def test_a_key_is_typed_hidden_and_kept_in_the_vault(
    fake_model: FakeModels, environ: dict[str, str], home: Path
) -> None:
    pytest.importorskip("pyrage")
    environ["OPENAI_BASE_URL"] = fake_model.openai_base
    async with at_a_terminal(environ) as (person, process):
        await typed(person)
        await person.answers(r"Where should OPENAI_API_KEY be stored\?\n.*1\. in the vault, encrypted", "\r")
        assert not home.exists()
        await person.answers(r"Is that right\?", "\r")
        assert await person.leaves(process) == 0
    assert fake_model.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in person.raw
    assert 'api_key: "{{OPENAI_API_KEY}}"' in (home / "config.yaml").read_text()
    assert all(KEY.encode() not in path.read_bytes() for path in home.iterdir())
    told = await trio.run_process([*COMMAND, "ask", "hello", "-q"], env=environ, capture_stdout=True, stdin=b"")
    assert told.stdout == b"ok\n"
    assert fake_model.requests[1].headers["authorization"] == f"Bearer {KEY}"


async def test_a_key_is_kept_in_a_file_for_its_owner(
    fake_model: FakeModels, environ: dict[str, str], home: Path
) -> None:
    environ["OPENAI_BASE_URL"] = fake_model.openai_base
    async with at_a_terminal(environ) as (person, process):
        await typed(person)
        await person.sees(r"Where should OPENAI_API_KEY be stored\?")
        await person.sees(READY)
        number = re.findall(r"(\d)\. in .*\.env, unencrypted", person.shown)[-1]
        person.press(f"{number}\r")
        await person.answers(r"Is that right\?", "\r")
        assert await person.leaves(process) == 0
    assert KEY not in person.raw
    assert (home / ".env").read_text() == f"OPENAI_API_KEY={KEY}\n"
    assert (home / ".env").stat().st_mode & 0o777 == 0o600
    assert "api_key" not in (home / "config.yaml").read_text()
    told = await trio.run_process([*COMMAND, "ask", "hello", "-q"], env=environ, capture_stdout=True, stdin=b"")
    assert told.stdout == b"ok\n"


@pytest.mark.parametrize("keys", ["\x03", "\x04"], ids=["ctrl-c", "ctrl-d"])
@pytest.mark.parametrize("stop", range(5))
async def test_nothing_is_left_behind_wherever_one_stops(
    fake_model: FakeModels, environ: dict[str, str], home: Path, stop: int, keys: str
) -> None:
    environ["OPENAI_BASE_URL"] = fake_model.openai_base
    async with at_a_terminal(environ) as (person, process):
        steps = [
            (r"Which model should answer\?", "1\r", READY),
            (r"Whose key is it\?", "openai\r", fragment("cli.render.menu.FilterMenu.visible_rows")),
            (r"The key of openai \(it is not shown\)", f"{KEY}\r", r"  >"),
            (r"Where should OPENAI_API_KEY be stored\?", "\r", READY),
            (r"Is that right\?", "\r", READY),
        ]
        for question, go_on, ready in steps[:stop]:
            await person.answers(question, go_on, ready)
        await person.answers(steps[stop][0], keys, steps[stop][2])
        assert await person.leaves(process) == (130 if keys == "\x03" else 1)
    assert not home.exists() or [*home.iterdir()] == []
    assert KEY not in person.raw


async def test_a_test_call_is_interrupted(fake_model: FakeModels, environ: dict[str, str], home: Path) -> None:
    fake_model.script(Reply(hold=trio.Event()))
    async with at_a_terminal(with_key(environ, fake_model)) as (person, process):
        await person.answers(r"Which model should answer\?", "\r")
        await fake_model.arrived(1)
        person.press("\x03")
        assert await person.leaves(process) == 130
    assert not home.exists()


@pytest.mark.parametrize("setting", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
async def test_without_colours_and_on_a_dumb_terminal(
    fake_model: FakeModels, environ: dict[str, str], home: Path, setting: dict[str, str]
) -> None:
    async with at_a_terminal(with_key(environ, fake_model) | setting) as (person, process):
        ready = r"number \[1\]: " if "TERM" in setting else READY
        await person.answers(r"Which model should answer\?", "\r", ready)
        await person.answers(r"it answered", "\r", ready)
        assert await person.leaves(process) == 0
    if "TERM" in setting:
        assert "\x1b" not in person.raw
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", person.raw)
    assert (home / "config.yaml").is_file()


async def test_a_key_is_not_shown_on_a_dumb_terminal_either(
    fake_model: FakeModels, environ: dict[str, str], home: Path
) -> None:
    environ |= {"OPENAI_BASE_URL": fake_model.openai_base, "TERM": "dumb"}
    async with at_a_terminal(environ) as (person, process):
        await person.answers(r"Which model should answer\?", "1\r", r"number \[1\]: ")
        await person.answers(r"Whose key is it\?", "openai\r", r"number or name \[1\]: ")
        await person.answers(fragment("cli.wizard.setup.Setup._paste.3", title="openai…"), f"{KEY}\r", r"  >")
        await person.answers(r"it answered", "\x03", r"number \[1\]: ")
        assert await person.leaves(process) == 130
        assert KEY not in person.raw
    assert not home.exists()


MINE = """\
# my own file
temperature: 0.2   # cool

model: other:big   # the lab's
clients:
- type: openai-compatible   # the lab
  name: other
  api_base: http://lab.example/v1

  # rate
  max_concurrency: 2

# the end
stream: false
"""


async def test_a_file_that_is_there_keeps_its_text(fake_model: FakeModels, environ: dict[str, str], home: Path) -> None:
    pytest.importorskip("pyrage")
    home.mkdir()
    (home / "config.yaml").write_text(MINE)
    environ["OPENAI_BASE_URL"] = fake_model.openai_base
    async with at_a_terminal(environ) as (person, process):
        await typed(person)
        await person.answers(r"Where should OPENAI_API_KEY be stored\?", "\r")
        await person.sees(r"-model: other:big   # the lab's\n\+model: openai:gpt-5.4-mini   # the lab's")
        await person.answers(r"Is that right\?", "\r")
        assert await person.leaves(process) == 0
    entry = """\
- type: openai
  # The key is in the vault: `callboard vault update OPENAI_API_KEY` changes it.
  api_key: "{{OPENAI_API_KEY}}"
"""
    wanted = MINE.replace("other:big", "openai:gpt-5.4-mini").replace("rrency: 2\n", f"rrency: 2\n{entry}")
    assert (home / "config.yaml").read_text() == wanted


async def test_no_file_is_offered_for_a_key_that_the_shell_sets_already(
    fake_model: FakeModels, environ: dict[str, str], home: Path
) -> None:
    fake_model.script(Reply(status=401, error="Incorrect API key provided"))
    environ |= {"OPENAI_API_KEY": "sk-a-wrong-one", "OPENAI_BASE_URL": fake_model.openai_base}
    async with at_a_terminal(environ) as (person, process):
        await person.answers(r"Which model should answer\?", "\r")
        await person.answers(r"That did not work\. What now\?", "\r")
        await person.answers(r"3\. paste an API key", "3\r")
        await person.answers(r"Whose key is it\?", "openai\r", fragment("cli.render.menu.FilterMenu.visible_rows"))
        await person.answers(fragment("cli.wizard.setup.Setup._paste.3", title="openai…"), f"{KEY}\r", r"  >")
        await person.answers(r"OPENAI_API_KEY is set already, with another value", "\x03")
        assert await person.leaves(process) == 130
    assert ".env, as it is" not in person.shown
    assert not home.exists()


def test_a_file_with_errors_is_not_asked_about(environ: dict[str, str], home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_bytes(b"model: \xff")
    ended = run(environ | {"GROQ_API_KEY": KEY}, "setup", "--no-input")
    assert ended.returncode == 3
    assert "config.yaml" in ended.stderr
    assert "unexpected error" not in ended.stderr


def run(environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def test_without_a_terminal_the_file_is_printed(environ: dict[str, str], home: Path) -> None:
    ended = run(environ | {"GROQ_API_KEY": KEY}, "setup", "--no-input")
    assert ended.returncode == 0
    assert "model: groq:openai/gpt-oss-120b\n" in ended.stdout
    assert "# The key is read from the environment variable GROQ_API_KEY." in ended.stdout
    assert f"nothing is written; {home}/config.yaml would be:" in ended.stderr
    assert KEY not in ended.stdout + ended.stderr
    assert not home.exists()


def test_without_a_key_and_a_server_it_says_what_to_do(environ: dict[str, str]) -> None:
    ended = run(environ, "setup", "--no-input")
    assert ended.returncode == 3
    assert "Set one of ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY" in ended.stderr


@pytest.mark.parametrize("command", [["ask", "hello"], ["run", "explore", "hello"]])
def test_without_any_model_other_commands_lead_here(environ: dict[str, str], command: list[str]) -> None:
    ended = run(environ, *command)
    assert ended.returncode == 3
    assert has_message(ended.stderr, "work.models.gateway.Gateway.lacks_model")
