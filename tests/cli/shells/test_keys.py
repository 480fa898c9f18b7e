"""Tab and Alt-e in shells on a real terminal (tmux)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from support.fake_models import FakeModels, Reply
from support.starter import CALLBOARD
from support.tmux import Tmux
from support.waiting import PATIENCE, until

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

PROMPT = "ready%"
START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-d", "-i"],
    "fish": ["fish"],
    "elvish": ["elvish", "-rc"],
}
OFTEN = ("bash", "zsh")
"""Those that are tried in every run of the tests."""

SHELLS = [
    pytest.param(
        name,
        marks=[
            pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed"),
            *([] if name in OFTEN else [pytest.mark.soak]),
        ],
    )
    for name in START
]


class Window:
    """A shell that has read its script."""

    def __init__(self, tmux: Tmux, place: dict[str, str], models: FakeModels) -> None:
        self.tmux, self.place, self.models = tmux, place, models
        self.home = Path(place["HOME"])

    async def start(self, shell: str) -> None:
        command = [*CALLBOARD, "shell-init", shell, "--loki"]
        script = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        environment = {**self.place, "PS1": f"{PROMPT} ", "SHELL": "/bin/sh"}
        started = list(START[shell])
        if shell == "bash":
            (self.home / "rc").write_text(script)
            started = ["bash", "--noprofile", "--rcfile", str(self.home / "rc"), "-i"]
            environment["PS1"] = f"{PROMPT} "
            (self.home / "rc").write_text(f"PS1='{PROMPT} '\nbind 'set show-all-if-ambiguous on'\n{script}")
        elif shell == "zsh":
            (self.home / ".zshrc").write_text(f"autoload -Uz compinit && compinit -u\nPROMPT='ready%% '\n{script}")
        elif shell == "fish":
            (self.home / ".config" / "fish").mkdir(parents=True)
            prompt = f"function fish_prompt; echo -n '{PROMPT} '; end\nset fish_greeting\n"
            (self.home / ".config" / "fish" / "config.fish").write_text(f"{prompt}{script}")
        else:
            (self.home / "rc.elv").write_text(
                f"set edit:prompt = {{ put '{PROMPT} ' }}\nset edit:rprompt = {{ }}\n{script}"
            )
            started = ["elvish", "-rc", str(self.home / "rc.elv")]
        self.tmux.start(started, environment)
        await self.tmux.shows(PROMPT)
        await trio.sleep(0.7)

    def line(self) -> str:
        """What stands behind the last prompt."""
        lines = [line for line in self.tmux.lines() if PROMPT in line]
        return lines[-1].partition(PROMPT)[2].strip() if lines else ""

    async def becomes(self, line: str) -> None:
        with trio.move_on_after(PATIENCE):
            while self.line() != line:
                await trio.sleep(0.05)
        assert self.line() == line, "\n".join(self.tmux.lines())

    def type(self, text: str) -> None:
        self.tmux.press("-l", text)


@pytest.fixture
def window(tmp_path: Path, place: dict[str, str], fake_model: FakeModels) -> Iterator[Window]:
    tmux = Tmux(100, 30, tmp_path)
    yield Window(tmux, place, fake_model)
    tmux.close()


@pytest.mark.parametrize("shell", SHELLS)
async def test_tab_completes_names(window: Window, shell: str) -> None:
    await window.start(shell)
    window.type("callboard run mine")
    window.tmux.press("Tab")
    await window.becomes("callboard run mine")
    window.tmux.press(*(["Enter"] if shell == "elvish" else []), "C-u")  # whose list stays until one is taken
    window.type("callboard -m there:bet")
    window.tmux.press("Tab")
    await window.becomes("callboard -m there:beta")


@pytest.mark.parametrize("shell", SHELLS)
async def test_tab_shows_what_there_is(window: Window, shell: str) -> None:
    await window.start(shell)
    window.type("callboard run mi")
    window.tmux.press("Tab")
    if shell != "fish":
        window.tmux.press("Tab")
    await window.tmux.shows("minor")
    assert any("mine" in line for line in window.tmux.lines())


@pytest.mark.parametrize("shell", SHELLS)
async def test_the_alias_is_completed_too(window: Window, shell: str) -> None:
    await window.start(shell)
    window.type("loki -r poe")
    window.tmux.press("Tab")
    await window.becomes("loki -r poet")


@pytest.mark.parametrize("shell", SHELLS)
async def test_alt_e_puts_a_command_in_the_place_of_words(window: Window, shell: str) -> None:
    window.models.config_dir(Path(window.place["CALLBOARD_CONFIG_DIR"]))
    window.models.script("echo 'a  b' | tr a c")
    await window.start(shell)
    window.type("say 'a  b'; with c")
    window.tmux.press("M-e")
    await window.becomes("echo 'a  b' | tr a c")
    assert window.models.requests[0].prompt == "say 'a  b'; with c"
    assert f"one {shell} command" in window.models.requests[0].system
    window.tmux.press("Enter")
    await window.tmux.shows("c  b")


@pytest.mark.parametrize("shell", SHELLS)
async def test_alt_e_keeps_the_line_if_nothing_comes_of_it(window: Window, shell: str) -> None:
    window.models.config_dir(Path(window.place["CALLBOARD_CONFIG_DIR"]))
    window.models.script(Reply(status=401, error="no such key"))
    await window.start(shell)
    window.tmux.press("M-e")  # of an empty line nothing is made
    window.type("list files")
    window.tmux.press("M-e")
    with trio.fail_after(PATIENCE):
        await window.models.arrived(1)
    await trio.sleep(1.5)
    await window.becomes("list files")


@pytest.mark.parametrize("shell", SHELLS)
async def test_ctrl_c_while_the_model_answers_leaves_the_shell_usable(window: Window, shell: str) -> None:
    window.models.config_dir(Path(window.place["CALLBOARD_CONFIG_DIR"]))
    window.models.script(Reply("ls", hold=trio.Event()))
    await window.start(shell)
    window.type("list files")
    window.tmux.press("M-e")
    with trio.fail_after(PATIENCE):
        await window.models.arrived(1)
    window.tmux.press("C-c")
    await until(lambda: window.models.cut)
    with trio.fail_after(PATIENCE):
        while "still here" not in window.tmux.lines():  # what is typed before the program has ended may be lost
            window.tmux.press("C-u")
            window.type("echo still here")
            window.tmux.press("Enter")
            with trio.move_on_after(2):
                await window.tmux.shows("\nstill here")
