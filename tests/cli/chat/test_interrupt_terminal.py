"""Interrupts in a real terminal (tmux): Esc and Ctrl-C at a moment of each kind, in one program."""

from __future__ import annotations

import json
import shutil
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest
import trio
from support.fake_models import FakeModels, Reply, Request
from support.mcp_processes import SERVERS
from support.messages import fragment
from support.strict_wires import objections, prompt_of
from support.tmux import Tmux
from support.waiting import PATIENCE

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is the terminal")

AGENTS = {
    "lead": "can_spawn_agents: true\nauto_continue: true\nglobal_tools: [execute_command]\n",
    "child": "",
    "served": "mcp_servers: [slow]\n",
}


class Program:
    """A chat in a terminal, and a model that answers by prompt and refuses what strict ones refuse."""

    def __init__(self, terminal: Tmux, models: FakeModels, directory: Path) -> None:
        self.terminal = terminal
        self.models = models
        self.directory = directory
        self.script: dict[str, deque[Reply]] = {}
        self.refused: list[str] = []
        self.taken: list[Reply] = []
        self.seconds: dict[str, float] = {}
        models.answer_with(self._answer)

    def start(self) -> None:
        config = self.models.config_dir(self.directory / "config")
        settings = json.loads((config / "config.yaml").read_text())
        more = {"permissions": {"execute_command": "allow"}, "enabled_tools": "execute_command"}
        (config / "config.yaml").write_text(json.dumps({**settings, **more}))
        for name, text in AGENTS.items():
            (config / "agents" / name).mkdir(parents=True)
            (config / "agents" / name / "config.yaml").write_text(f"name: {name}\ninstructions: You work.\n{text}")
        script = f"echo $$ > {self.directory}/served; while :; do sleep 0.1; done"
        well = f"[ -e {self.directory}/well ] && exec /bin/sh {SERVERS}/tiny.sh"
        entry = {"command": "/bin/sh", "args": ["-c", f"{well}; trap '' TERM; {script}"]}
        (config / "mcp.json").write_text(json.dumps({"mcpServers": {"slow": entry}}))
        places = {f"CALLBOARD_{name}_DIR": str(self.directory / name.lower()) for name in ("STATE", "CACHE")}
        home = {"XDG_STATE_HOME": str(self.directory / "home"), "HOME": str(self.directory), "LANG": "C.UTF-8"}
        environment = {"CALLBOARD_CONFIG_DIR": str(config), "TERM": "screen-256color", **places, **home}
        self.terminal.start([sys.executable, "-m", "callboard.cli", "chat", "lead"], environment)

    def _answer(self, request: Request) -> Reply | str:
        self.refused += objections(request)
        prompt = prompt_of(request)
        replies = self.script.get(prompt) or self.script.get("*")
        if not replies or prompt.startswith("after "):
            return prompt.replace("after ", "behind ") if prompt.startswith("after ") else "ok"
        self.taken.append(replies[0])
        return replies.popleft()

    async def interrupt(self, kind: str, key: str, *replies: Reply, reached: Callable[[], Awaitable[None]]) -> None:
        """Send a prompt, press the key when the moment has come, and send another."""
        self.script = {kind: deque(replies)} if kind not in self.script else self.script
        self.terminal.press(kind, "Enter")
        await reached()
        before, began, cut = _interrupted(self.terminal.lines()), trio.current_time(), self.models.cut
        self.terminal.press(key)
        await self.terminal.until(
            lambda lines: _interrupted(lines) > before or (kind == "compression" and self.models.cut > cut)
        )
        self.seconds[f"{kind}, {key}"] = trio.current_time() - began
        self.script = {}
        (self.directory / "well").touch()
        self.terminal.press(f"after {kind}", "Enter")
        await self.terminal.shows(f"behind {kind}")

    async def rests(self) -> None:
        """No run answers: nothing but a blank row stands above the prompt."""
        await self.terminal.until(lambda lines: len(lines) > 1 and not lines[-2] and "> " in f"{lines[-1]} ")

    async def asked(self, reply: Reply) -> None:
        """The model was asked for this reply."""
        with trio.fail_after(PATIENCE):
            while reply not in self.taken:
                await trio.sleep(0.01)

    async def pid_in(self, name: str) -> int:
        path = self.directory / name
        with trio.fail_after(PATIENCE):
            while not (path.exists() and path.read_text().strip()):
                await trio.sleep(0.01)
        return int(path.read_text())


def _interrupted(lines: list[str]) -> int:
    return sum(line.endswith("interrupted") for line in lines)


def held() -> Reply:
    return Reply(hold=trio.Event())


def call(name: str, **arguments: object) -> tuple[str, object]:
    return name, arguments


async def gone(pid: int) -> None:
    with trio.fail_after(PATIENCE):
        while psutil.pid_exists(pid):
            await trio.sleep(0.01)


async def play(program: Program, keys: tuple[str, str]) -> None:
    terminal, first, second = program.terminal, *keys
    words = Reply("let me see what there is", stall=b"e see")

    async def streams() -> None:
        with trio.fail_after(PATIENCE):
            await words.stalled.wait()
        await terminal.shows("let me see")  # and no more of it will come

    await program.interrupt("streaming", first, words, reached=streams)
    assert not any("what there is" in line for line in terminal.lines())

    deaf = f"trap '' TERM; echo $$ > {program.directory}/up; while :; do sleep 0.1; done"
    tool = Reply(calls=[call("execute_command", command=deaf)])

    async def works() -> None:
        await program.pid_in("up")

    await program.interrupt("tool", second, tool, reached=works)
    await gone(await program.pid_in("up"))

    question = Reply(calls=[call("user__input", question="Who is there?")])

    async def asks() -> None:
        await terminal.shows("> lead asks: Who is there?")  # it has the keys
        if first == "Escape":
            terminal.press("Escape")  # goes back to the input line
            await terminal.shows("? lead asks: Who is there?")

    await program.interrupt("question", first, question, reached=asks)

    child = held()
    program.script = {"sub-agent": deque([Reply(calls=[call("agent__spawn", agent="child", prompt="work")]), held()])}
    program.script["work"] = deque([child])
    await program.interrupt("sub-agent", second, reached=lambda: program.asked(child))

    more, listed = held(), [call("todo__init", goal="all"), call("todo__add", task="first")]
    program.script = {"auto-continue": deque([Reply(calls=listed), Reply("not yet")]), "*": deque([more])}
    await program.interrupt("auto-continue", first, reached=lambda: program.asked(more))

    await program.rests()  # the todo list has the agent go on for a while
    terminal.press(".exit agent", "Enter")
    await terminal.shows("model>")
    terminal.press(".agent served", "Enter")
    await terminal.shows("served>")
    (program.directory / "well").unlink()

    async def starts() -> None:
        await program.pid_in("served")

    await program.interrupt("MCP start", second, reached=starts)
    await gone(await program.pid_in("served"))

    await program.rests()
    for line in (".exit agent", ".session kept"):
        terminal.press(line, "Enter")
    await terminal.shows("model/kept>")
    terminal.press(".set compression_threshold 100", "Enter")
    summary = held()
    program.script = {"compression": deque([Reply("word " * 200)]), "*": deque([summary])}
    cut = program.models.cut
    await program.interrupt("compression", first, reached=lambda: program.asked(summary))
    assert program.models.cut == cut + 1


@pytest.mark.parametrize(
    "keys", [("Escape", "C-c"), pytest.param(("C-c", "Escape"), marks=pytest.mark.soak)], ids=["Esc first", "^C first"]
)
async def test_the_prompt_is_back_at_a_moment_of_each_kind(
    fake_model: FakeModels, tmp_path: Path, keys: tuple[str, str]
) -> None:
    terminal = Tmux(100, 40, tmp_path)
    try:
        program = Program(terminal, fake_model, tmp_path)
        program.start()
        await terminal.shows(fragment("cli.chat.conversation.ChatConversation._open"))
        await play(program, keys)
        assert not program.refused
        print(program.seconds)  # shown with -s
        terminal.press("C-d")
        assert await terminal.ended() == 0
    finally:
        terminal.close()
