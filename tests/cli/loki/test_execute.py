"""`callboard -e`: a command from words; at a terminal (tmux) a menu, elsewhere the command alone."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from support.fake_models import FakeModels, Reply
from support.messages import fragment, has_message
from support.tmux import POLL, Tmux
from support.waiting import PATIENCE, READING

from callboard.cli.loki.execute import command_of

from ..conftest import Ended

Callboard = Callable[..., Ended]
HERE = Path(__file__).parents[3]
PROGRAM = [sys.executable, "-m", "callboard.cli"]
MENU = "execute | revise | describe | copy | quit:"

at_terminal = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


@pytest.mark.parametrize(
    ("answer", "command"),
    [
        ("ls -l", "ls -l"),
        ("```sh\nls -l\n```", "ls -l"),
        ("Here:\n```bash\nls -l\n```\nIt lists files.", "ls -l"),
        ("`ls -l`\n", "ls -l"),
        ("$ ls -l", "ls -l"),
        ("echo `date` and `id`", "echo `date` and `id`"),
        ("`date` | cat `id`", "`date` | cat `id`"),
        ("for a in 1 2; do\n  echo $a\ndone", "for a in 1 2; do\n  echo $a\ndone"),
        ("", ""),
        ("`", "`"),
    ],
)
def test_the_command_in_an_answer(answer: str, command: str) -> None:
    assert command_of(answer) == command


def test_without_a_terminal_the_command_is_printed_and_nothing_else(
    callboard: Callboard, models: FakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/bin/bash")
    models.script(f"```bash\ntouch {tmp_path / 'made'}\n```")
    assert callboard("-e", "make", "a", "file") == (0, f"touch {tmp_path / 'made'}\n", "")
    assert not (tmp_path / "made").exists()
    assert models.requests[0].prompt == "make a file"
    assert "one bash command" in models.requests[0].system


def test_a_dry_run_shows_the_input_and_executes_nothing(callboard: Callboard, models: FakeModels) -> None:
    code, out, _err = callboard("-e", "--dry-run", "list files")
    assert (code, "user:\nlist files" in out) == (0, True)
    assert models.requests == []


@pytest.mark.parametrize("reply", ["ls \x1b[8m; rm -r x", "ls \u202e x", "ls\r\x00"], ids=ascii)
def test_what_a_terminal_would_obey_is_not_handed_to_a_shell(
    callboard: Callboard, models: FakeModels, reply: str
) -> None:
    models.script(reply)
    code, out, err = callboard("-e", "list files")
    assert (code, out) == (2, "")
    assert has_message(err, "cli.loki.execute._harmless")


def test_no_command_is_a_failure(callboard: Callboard, models: FakeModels) -> None:
    models.script("```\n```")
    code, out, err = callboard("-e", "list files")
    assert (code, out) == (1, "")
    assert has_message(err, "cli.loki.execute._asked")


def test_a_failed_run_has_its_own_exit_code(callboard: Callboard, models: FakeModels) -> None:
    models.script(*[Reply(status=401, error="no")] * 2)
    code, out, err = callboard("-e", "list files")
    assert (code, out) == callboard("ask", "list files")[:2]
    assert err.startswith("callboard: ")


# --- at a terminal -----------------------------------------------------------------------------------------


class ExecuteWindow:
    """A window in which `callboard -e` runs."""

    def __init__(self, tmux: Tmux, models: FakeModels, home: Path) -> None:
        self.tmux, self.models, self.home = tmux, models, home
        self.environment = {
            "CALLBOARD_CONFIG_DIR": str(models.config_dir(home / "config")),
            "HOME": str(home),
            "TERM": "tmux-256color",
            "PYTHONPATH": str(HERE / ".types"),
            "SHELL": "/bin/sh",
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_CACHE_HOME": str(home / "cache"),
        }

    async def begin(self, *arguments: str, menu: bool = True) -> None:
        self.tmux.start([*PROGRAM, *arguments], self.environment)
        if menu:
            await self.menu(1)

    async def menu(self, count: int) -> None:
        """Wait until the menu stands there so many times, and can be read."""
        with trio.fail_after(PATIENCE):
            while "\n".join(self.tmux.lines()).count(MENU) < count:
                await trio.sleep(POLL)
        await trio.sleep(READING)


@pytest.fixture
def execute_window(fake_model: FakeModels, tmp_path: Path) -> Iterator[ExecuteWindow]:
    tmux = Tmux(80, 24, tmp_path)
    yield ExecuteWindow(tmux, fake_model, tmp_path)
    tmux.close()


@at_terminal
@pytest.mark.parametrize("key", ["e", "Enter", *(pytest.param(key, marks=pytest.mark.soak) for key in "yE")])
async def test_a_key_executes_it_and_its_exit_code_is_ours(execute_window: ExecuteWindow, key: str) -> None:
    execute_window.models.script('echo "in $PWD"; test -t 0 && test -t 1 && exit 7')
    await execute_window.begin("-e", "say", "where")
    execute_window.tmux.press(key)
    assert await execute_window.tmux.ended() == 7
    assert f"in {Path.cwd()}" in execute_window.tmux.lines()


@at_terminal
@pytest.mark.parametrize("key", ["q", "C-c", pytest.param("C-d", marks=pytest.mark.soak)])
async def test_a_key_leaves_and_the_terminal_is_as_it_was(execute_window: ExecuteWindow, key: str) -> None:
    execute_window.models.script(f"touch {execute_window.home / 'made'}")
    await execute_window.begin("-e", "make a file")
    execute_window.tmux.press(key)
    assert await execute_window.tmux.ended() == (130 if key == "C-c" else 0)
    assert not (execute_window.home / "made").exists()
    assert "Traceback" not in "\n".join(execute_window.tmux.lines())


@at_terminal
async def test_keys_that_mean_nothing_change_nothing(execute_window: ExecuteWindow) -> None:
    execute_window.models.script("echo done")
    await execute_window.begin("-e", "say done")
    for key in ("x", "Up", "ü", "Escape", "C-z"):  # Escape right before `e` could be read as Alt-e
        execute_window.tmux.press(key)
        await trio.sleep(0.3)
    execute_window.tmux.press("e")
    assert await execute_window.tmux.ended() == 0
    assert "done" in execute_window.tmux.lines()


@at_terminal
async def test_what_was_typed_while_the_model_answered_is_no_choice(execute_window: ExecuteWindow) -> None:
    hold = trio.Event()
    execute_window.models.script(Reply(f"touch {execute_window.home / 'made'}", hold=hold))
    await execute_window.begin("-e", "make a file", menu=False)
    with trio.fail_after(PATIENCE):
        await execute_window.models.arrived(1)
    execute_window.tmux.press("e", "Enter", "y")
    hold.set()
    await execute_window.menu(1)
    assert not (execute_window.home / "made").exists()
    execute_window.tmux.press("q")
    assert await execute_window.tmux.ended() == 0


@at_terminal
@pytest.mark.full
async def test_describe_explains_it_and_asks_again(execute_window: ExecuteWindow) -> None:
    execute_window.models.script("ls -l", "Lists files at length.")
    await execute_window.begin("-e", "list files")
    execute_window.tmux.press("d")
    await execute_window.tmux.shows("Lists files at length.")
    await execute_window.menu(2)
    assert execute_window.models.requests[1].prompt == "ls -l"
    assert execute_window.models.requests[1].system.startswith("Explain the sh command")
    execute_window.tmux.press("q")
    assert await execute_window.tmux.ended() == 0


@at_terminal
@pytest.mark.full
async def test_revise_takes_words_and_comes_back_with_another_command(execute_window: ExecuteWindow) -> None:
    execute_window.models.script("ls -l", "echo hidden too")
    await execute_window.begin("-e", "list files")
    execute_window.tmux.press("r")
    await execute_window.tmux.shows(fragment("cli.loki.execute._revised"))
    await trio.sleep(READING)
    execute_window.tmux.press("-l", "hidden ones")
    execute_window.tmux.press("Enter")
    await execute_window.menu(2)
    asked = execute_window.models.requests[1].prompt
    assert all(part in asked for part in ("list files", "ls -l", "Change it: hidden ones"))
    execute_window.tmux.press("e")
    assert await execute_window.tmux.ended() == 0
    assert "hidden too" in execute_window.tmux.lines()


@at_terminal
@pytest.mark.full
async def test_ctrl_c_while_words_are_typed_ends_it(execute_window: ExecuteWindow) -> None:
    execute_window.models.script("ls -l")
    await execute_window.begin("-e", "list files")
    execute_window.tmux.press("r")
    await execute_window.tmux.shows(fragment("cli.loki.execute._revised"))
    await trio.sleep(READING)
    execute_window.tmux.press("C-c")
    assert await execute_window.tmux.ended() == 130
    assert "Traceback" not in "\n".join(execute_window.tmux.lines())


@at_terminal
@pytest.mark.full
async def test_the_command_may_have_as_many_files_open_as_without_us(execute_window: ExecuteWindow) -> None:
    execute_window.models.script("echo files: $(ulimit -n)")
    script = f"ulimit -n 512; exec {' '.join(PROGRAM)} -e 'how many files'"
    execute_window.tmux.start(["sh", "-c", script], execute_window.environment)
    await execute_window.menu(1)
    execute_window.tmux.press("e")
    assert await execute_window.tmux.ended() == 0
    assert "files: 512" in execute_window.tmux.lines()


@at_terminal
@pytest.mark.full
async def test_copy_hands_it_to_the_clipboard(execute_window: ExecuteWindow) -> None:
    execute_window.models.script("ls -l")
    await execute_window.begin("-e", "list files")
    execute_window.tmux.press("c")
    assert await execute_window.tmux.ended() == 0
    assert any(line.startswith("callboard: copied (") for line in execute_window.tmux.lines())


@at_terminal
async def test_what_a_terminal_would_obey_is_shown_and_not_executed(execute_window: ExecuteWindow) -> None:
    execute_window.models.script(f"touch {execute_window.home / 'made'} \x1b[8m")
    await execute_window.begin("-e", "make a file", menu=False)
    await execute_window.tmux.shows("revise | describe | quit:")
    assert any("\\x1b[8m" in line for line in execute_window.tmux.lines())
    await trio.sleep(READING)
    execute_window.tmux.press("e")
    await trio.sleep(0.4)
    execute_window.tmux.press("q")
    assert await execute_window.tmux.ended() == 0
    assert not (execute_window.home / "made").exists()


@at_terminal
async def test_what_is_piped_in_goes_with_the_words_and_the_command_has_the_terminal(
    execute_window: ExecuteWindow,
) -> None:
    execute_window.models.script("test -t 0 && echo at a terminal")
    script = f"printf 'a b' | {' '.join(PROGRAM)} -e 'with these'"
    execute_window.tmux.start(["sh", "-c", script], execute_window.environment)
    await execute_window.menu(1)
    assert execute_window.models.requests[0].prompt == "with these\na b"
    execute_window.tmux.press("e")
    assert await execute_window.tmux.ended() == 0
    assert "at a terminal" in execute_window.tmux.lines()


@at_terminal
@pytest.mark.full
async def test_ctrl_c_while_the_model_answers_ends_it(execute_window: ExecuteWindow) -> None:
    execute_window.models.script(Reply("ls", hold=trio.Event()))
    await execute_window.begin("-e", "list files", menu=False)
    with trio.fail_after(PATIENCE):
        await execute_window.models.arrived(1)
    execute_window.tmux.press("C-c")
    assert await execute_window.tmux.ended() == 130
    assert MENU not in "\n".join(execute_window.tmux.lines())


@at_terminal
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.full
async def test_it_is_in_the_history_of_the_shell_unless_the_settings_forbid_it(
    execute_window: ExecuteWindow, kept: bool
) -> None:
    history = execute_window.home / ".bash_history"
    history.write_text("ls\n")
    execute_window.models.script("echo done")
    execute_window.environment |= {"SHELL": "/bin/bash", **({} if kept else {"CALLBOARD_SAVE_SHELL_HISTORY": "false"})}
    await execute_window.begin("-e", "say done")
    execute_window.tmux.press("e")
    assert await execute_window.tmux.ended() == 0
    assert history.read_text() == ("ls\necho done\n" if kept else "ls\n")


# --- without a text ----------------------------------------------------------------------------------------


@at_terminal
@pytest.mark.parametrize(
    ("line", "prompt"),
    [
        ("", "assistant>"),
        ("--no-tools", "model>"),
        ("loki", "model>"),
        ("-r code -s one", "code/one>"),
        ("loki -a explore", "explore>"),
        ("-m fake:other -s", "assistant/temp>"),
    ],
)
async def test_the_chat_begins_as_the_flags_say(execute_window: ExecuteWindow, line: str, prompt: str) -> None:
    await execute_window.begin(*line.split(), menu=False)
    await execute_window.tmux.shows(prompt)
    await trio.sleep(0.3)
    execute_window.tmux.press("C-d")
    assert await execute_window.tmux.ended() == 0
