"""Draws the pictures of docs/chat.md: `python tests/packaging/chat_pictures.py` (or `make docs`).

Each is the screen of a program in a real terminal, at a conversation that is scripted. A test plays them again and
compares what is written on them, so that they can't fall behind the program.
"""

from __future__ import annotations

import json
import os
import queue
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parents[2]
sys.path.insert(0, str(HERE / "tests"))  # as a script, it finds the helpers of the tests there

import trio  # noqa: E402 - see above
from qa.terminal import Terminal  # noqa: E402
from support.fake_models import FakeModels, Reply, Request, listening  # noqa: E402
from support.terminal_svg import Coloured, drawn, picture, rows_of  # noqa: E402

PICTURES = HERE / "docs" / "pictures"
COLUMNS, ROWS = 92, 24

ANSWER = """\
The loop ends one number too early: `range(1, n)` leaves out `n`.

```python
def total(n: int) -> int:
    \"\"\"The sum of the numbers from 1 to n.\"\"\"
    return sum(range(1, n + 1))
```

- `total(3)` is **6** now
- the sum of no numbers is still 0
"""
CODE = "def total(n):\n    return sum(range(1, n))\n"


class PictureSetup:
    """A directory with a configuration, a file to work on, and a model that says what `answers` says."""

    def __init__(self, models: FakeModels, directory: Path) -> None:
        self.models = models
        self._directory = directory
        self.work = directory / "work"
        self.work.mkdir()
        (self.work / "total.py").write_text(CODE)
        self.config = directory / "config"
        model = {"name": "gpt-5-mini", "max_input_tokens": 400_000}
        client = {
            "type": "openai-compatible",
            "name": "openai",
            "api_base": models.openai_base,
            "api_key": "sk-none",
            "models": [model],
        }
        self._write("config.yaml", {"model": "openai:gpt-5-mini", "clients": [client], "save": False})
        coder = {"description": "Mends programs.", "instructions": "You mend programs.", "global_tools": ["fs"]}
        self._write("agents/coder/config.yaml", {"name": "coder", **coder})
        lead = {"description": "Has others work.", "instructions": "You lead.", "can_spawn_agents": True}
        self._write("agents/lead/config.yaml", {"name": "lead", **lead})
        for name in ("reader", "critic"):
            self._write(f"agents/{name}/config.yaml", {"name": name, "instructions": "You work."})

    def _write(self, name: str, value: object) -> None:
        file = self.config / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value, indent=1))

    @contextmanager
    def terminal(self, *arguments: str, rows: int = ROWS, **more: str) -> Iterator[Terminal]:
        """`callboard` with these arguments."""
        place = self._directory
        environ = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "VIRTUAL_ENV") if name in os.environ} | {
            "HOME": str(place),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "CALLBOARD_CONFIG_DIR": str(self.config),
            "XDG_CACHE_HOME": str(place / "cache"),
            "XDG_STATE_HOME": str(place / "state"),
            **more,
        }
        with Terminal(list(arguments), environ, self.work, columns=COLUMNS, rows=rows, anew=True) as terminal:
            yield terminal


def first_start(picture_setup: PictureSetup) -> Coloured:
    """The wizard, where a key is in the environment and nothing is configured."""
    nothing = str(picture_setup.work / "nothing")
    with picture_setup.terminal(CALLBOARD_CONFIG_DIR=nothing, ANTHROPIC_API_KEY="sk-ant-none") as terminal:
        terminal.shows("arrows or a number")
        return _looked(terminal)


def answer(picture_setup: PictureSetup) -> Coloured:
    """An answer with code, after a call of a tool."""
    picture_setup.models.script(
        Reply(calls=[("fs_read", {"path": "total.py"})]), Reply(text=ANSWER, input_tokens=1_204)
    )
    with picture_setup.terminal("chat", "coder") as terminal:
        _asks(terminal, "coder> ", "Why is total(3) not 6?")
        terminal.shows("still 0\n(.*\n)*coder> ")
        return _looked(terminal)


def question(picture_setup: PictureSetup) -> Coloured:
    """Permission for a change, which is shown."""
    patch = {"path": "total.py", "old": "range(1, n)", "new": "range(1, n + 1)"}
    picture_setup.models.script(Reply(calls=[("fs_patch", _patch(patch))]))
    with picture_setup.terminal("chat", "coder") as terminal:
        _asks(terminal, "coder> ", "Mend it, please")
        terminal.shows("typed text says why not")
        return _looked(terminal)


def _patch(wanted: dict[str, str]) -> dict[str, str]:
    diff = f"--- a/total.py\n+++ b/total.py\n@@ -1,2 +1,2 @@\n def total(n):\n-    return sum({wanted['old']})\n"
    return {"path": wanted["path"], "contents": f"{diff}+    return sum({wanted['new']})\n"}


def children(picture_setup: PictureSetup) -> Coloured:
    """Agents that another has begun, at work."""
    never = trio.Event()
    spawn = [("agent__spawn", {"agent": name, "prompt": f"{name}: the draft"}) for name in ("reader", "critic")]

    def answered(request: Request) -> Reply:
        return Reply(hold=never) if request.results or "draft" in request.prompt else Reply(calls=spawn)

    picture_setup.models.answer_with(answered)
    with picture_setup.terminal("chat", "lead") as terminal:
        _asks(terminal, "lead> ", "Have two look at it")
        terminal.shows(r"agent_critic_\w+ \(agent\), 1 turn")
        return _looked(terminal)


def completion(picture_setup: PictureSetup) -> Coloured:
    """The list of completions."""
    with picture_setup.terminal("chat") as terminal:
        terminal.shows("lists commands")
        terminal.press(".s")
        terminal.shows("Start a session")
        return _looked(terminal)


SCENES: dict[str, Callable[[PictureSetup], Coloured]] = {
    "first-start": first_start,
    "answer": answer,
    "question": question,
    "children": children,
    "completion": completion,
}


def _asks(terminal: Terminal, prompt: str, text: str) -> None:
    terminal.shows("lists commands")
    terminal.asks(re.escape(prompt.rstrip()))
    terminal.press(f"{text}\r")


def _looked(terminal: Terminal) -> Coloured:
    """What it shows, once it has stood for a moment."""
    before = ""
    while before != (now := "\n".join(terminal.rows())):
        before = now
        threading.Event().wait(0.7)
        if re.search(r"\ds\b", now):  # it counts seconds
            break
    terminal.rows()
    return drawn(terminal.raw, COLUMNS, ROWS)


def played(name: str) -> Coloured:
    """The screen of one of the scenes."""
    ready: queue.Queue[tuple[FakeModels, trio.lowlevel.TrioToken, trio.CancelScope]] = queue.Queue()

    async def serve() -> None:
        listener, port = listening()
        with trio.CancelScope() as scope:
            server = FakeModels(port)
            ready.put((server, trio.lowlevel.current_trio_token(), scope))
            await server.serve(listener)

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    models, token, scope = ready.get()
    try:
        with tempfile.TemporaryDirectory() as directory:
            return SCENES[name](PictureSetup(models, Path(directory)))
    finally:
        token.run_sync_soon(scope.cancel)
        thread.join()


def words(svg_or_rows: str | list[str]) -> str:
    """What is written on a picture, without what differs each time: numbers and pictures of work."""
    if isinstance(svg_or_rows, str):
        svg_or_rows = re.findall(r"<text[^>]*>([^<]*)</text>", svg_or_rows)
        svg_or_rows = [row.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") for row in svg_or_rows]
    text = "".join("".join(row.split()) for row in svg_or_rows)
    return re.sub(r"[0-9.]+m?s|[0-9a-f]{6,}|[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]|127\.0\.0\.1:\d+|/tmp/\S+", "", text)


def main() -> None:
    """Draws them all."""
    PICTURES.mkdir(exist_ok=True)
    for name in SCENES:
        screen = played(name)
        (PICTURES / f"{name}.svg").write_text(picture(screen))
        print(f"== {name}", *rows_of(screen), sep="\n")


if __name__ == "__main__":
    main()
