"""A person's home for the rows: a model server, a config directory with one of everything, and terminals in it."""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import trio
from qa.terminal import Terminal
from support.fake_models import FakeModels, Reply, Request, listening
from support.mcp_entries import mcp_json, scripted
from support.starter import CALLBOARD
from support.waiting import PATIENCE

Json = Any
KEPT = ("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "PYTHONPATH", "COVERAGE_PROCESS_START")
"""Of the environment; all else could say something to a program under test."""


class Ended(NamedTuple):
    """How a program has ended: its exit code, and what its terminal showed."""

    code: int
    shown: str


class QaHome:
    """See the module.

    Attributes:
        models: the scripted models `fake:model` and `fake:other`.
        home, config, work: the person's, and where programs run.
        environ: what programs find in the environment.
    """

    def __init__(self, models: FakeModels, directory: Path) -> None:
        self.models = models
        self.home, self.config, self.work = (directory / name for name in ("home", "config", "work"))
        for made in (self.home, self.config, self.work, directory / "runtime"):
            made.mkdir(parents=True)
        (directory / "runtime").chmod(0o700)
        self.environ = {name: os.environ[name] for name in KEPT if name in os.environ} | {
            "HOME": str(self.home),
            "TERM": "xterm-256color",
            "SHELL": "/bin/bash",
            "CALLBOARD_CONFIG_DIR": str(self.config),
            "XDG_CACHE_HOME": str(directory / "cache"),
            "XDG_STATE_HOME": str(directory / "state"),
            "XDG_RUNTIME_DIR": str(directory / "runtime"),
            "EDITOR": f"{sys.executable} -S {_editor(directory)}",
            "EDITED": str(directory / "edited"),
            "WRITES": str(directory / "writes"),
        }
        self.edited = directory / "edited"
        self.writes = directory / "writes"
        self.settings()
        furnish(self.config)
        models.answer_with(answer)

    def settings(self, **more: Json) -> None:
        """Writes config.yaml; `more` are keys beside those that every row needs."""
        model = {"max_input_tokens": 100_000, "supports_vision": True}
        client = {
            "type": "openai-compatible",
            "name": "fake",
            "api_base": self.models.openai_base,
            "api_key": "sk-test",
            "models": [
                {"name": "model", **model},
                {"name": "other", **model},
                {"name": "embed", "type": "embedding"},
            ],
        }
        keys = {"model": "fake:model", "rag_embedding_model": "fake:embed", "save": False, "clients": [client]}
        keys |= {"compat": "loki", **more}  # the rows are about what Loki does
        (self.config / "config.yaml").write_text(json.dumps(keys, indent=1))

    @contextmanager
    def terminal(self, *arguments: str, anew: bool = False, **environ: str) -> Iterator[Terminal]:
        """`callboard` with these arguments at a terminal; `anew`: in a Python that begins with it."""
        with Terminal(list(arguments), {**self.environ, **environ}, self.work, anew=anew) as terminal:
            yield terminal

    def loki(self, *arguments: str, **environ: str) -> Ended:
        """`callboard loki` with these arguments at a terminal, to its end."""
        with self.terminal("loki", *arguments, **environ) as terminal:
            code = terminal.ended()
            return Ended(code, terminal.shown())

    def piped(self, text: str, *arguments: str) -> Ended:
        """`callboard loki` with text piped in, to its end; of what it says, stdout."""
        done = subprocess.run(
            [*CALLBOARD, "loki", *arguments],
            input=text,
            capture_output=True,
            text=True,
            env=self.environ,
            cwd=self.work,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return Ended(done.returncode, done.stdout)

    def says(self, *replies: Reply | str) -> None:
        """What the chat models say next, in order, to whatever they are asked; then `answer` again."""
        self.models.answer_with(when("", *replies))

    def last(self) -> Request:
        """The last request that a chat model got."""
        return self.requests()[-1]

    def requests(self) -> list[Request]:
        """What chat models were asked so far."""
        return [request for request in self.models.requests if "messages" in request.json]

    def opened(self) -> str:
        """What the editor was last opened with: the file's name, and its text."""
        return self.edited.read_text()

    def editor_writes(self, text: str | None) -> None:
        """What the editor puts into the next files it is opened with; None to leave them."""
        if text is None:
            self.writes.unlink(missing_ok=True)
        else:
            self.writes.write_text(text)


@contextmanager
def open_qa_home(directory: Path) -> Iterator[QaHome]:
    """Make the home. Its model server has a thread of its own, because this one waits for programs at terminals."""
    ready: queue.Queue[tuple[FakeModels, trio.lowlevel.TrioToken, trio.CancelScope]] = queue.Queue()

    async def serve() -> None:
        listener, port = listening()
        server = FakeModels(port)
        with trio.CancelScope() as scope:
            ready.put((server, trio.lowlevel.current_trio_token(), scope))
            await server.serve(listener)

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    server, token, scope = ready.get()
    try:
        yield QaHome(server, directory)
    finally:
        token.run_sync_soon(scope.cancel)
        thread.join()


# --- the model ------------------------------------------------------------------------------------------------


def answer(request: Request) -> Reply | str:
    """What is not scripted: vectors that know a few words, and answers that repeat what was asked."""
    if request.path.endswith("/embeddings"):
        words = ("plum", "apple", "bicycle")
        rows = [
            {"index": n, "embedding": [1.0, *(10.0 * (word in text) for word in words)]}
            for n, text in enumerate(request.json["input"])
        ]
        return Reply(raw=json.dumps({"data": rows}).encode())
    return f"You said: {request.prompt[:60]}"


def when(prompt: str, *replies: Reply | str) -> Callable[[Request], Reply | str]:
    """Answers those requests whose last user message has `prompt` by `replies`, in order; others by `answer`."""
    left = list(replies)

    def decide(request: Request) -> Reply | str:
        if "messages" in request.json and re.search(prompt, request.prompt) and left:
            return left.pop(0)
        return answer(request)

    return decide


# --- what lies in the config directory ------------------------------------------------------------------------

FILES = {
    "roles/pirate.md": "---\ndescription: Talks like one.\ntemperature: 0.25\n---\nYou are a pirate.\n",
    "roles/.hidden.md": "Not to be seen.\n",
    "roles/reader.md": "---\nenabled_mcp_servers: books\n---\nYou read.\n",
    "roles/counter.md": "---\nenabled_mcp_servers: numbers\n---\nYou count.\n",
    "roles/shelf-reader.md": "---\nenabled_mcp_servers: shelf\n---\nYou read what is on the shelf.\n",
    "macros/greet.yaml": """
description: Greets somebody.
variables: [{name: who, default: Ada, rest: true}]
steps: ["Say hello to {{who}}."]
""",
    "agents/.shared/utils.sh": "true\n",
    "agents/clerk/config.yaml": """
name: clerk
description: Looks after files.
instructions: You are the clerk, and you work for {{who}}.
variables: [{name: who, description: Whom it works for., default: a colleague}]
conversation_starters: [What is in the drawer?, Who was here?]
global_tools: [get_current_time]
""",
    "agents/clerk/tools.sh": """#!/usr/bin/env bash
# @cmd Looks into the drawer.
# @option --label <TEXT> what stands on it
drawer() { echo "in the drawer for $LLM_AGENT_VAR_WHO: ${argc_label:-pencils}" >> "$LLM_OUTPUT"; }
# @cmd Breaks something.
broken() { echo "it fell down" >&2; return 7; }
eval "$(argc --argc-eval "$0" "$@")"
""",
    "agents/librarian/config.yaml": """
name: librarian
instructions: You are the librarian.
mcp_servers: [books]
""",
    "agents/worker/config.yaml": """
name: worker
instructions: You work through a list.
auto_continue: true
""",
    "agents/plodder/config.yaml": """
name: plodder
instructions: You work through a long list.
auto_continue: true
compression_threshold: 100
compression_keep_last: 1
""",
    "agents/boss/config.yaml": """
name: boss
instructions: You are the boss.
can_spawn_agents: true
max_concurrent_agents: 2
max_agent_depth: 1
""",
    "agents/helper/config.yaml": "name: helper\ninstructions: You are the helper.\ncan_spawn_agents: true\n",
}


def furnish(config: Path) -> None:
    """Lays out the files, servers that work, and the documents of a base."""
    for name, text in FILES.items():
        file = config / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.lstrip("\n"))
    (config / "agents" / "clerk" / "tools.sh").chmod(0o755)
    mcp_json(config, books=scripted("--legacy"), numbers=scripted("--legacy"))
    fruit = config.parent / "fruit"
    shutil.rmtree(fruit, ignore_errors=True)
    fruit.mkdir()
    (fruit / "plums.md").write_text("A plum is blue.\n")
    (fruit / "apples.md").write_text("An apple is red.\n")


def _editor(directory: Path) -> Path:
    """A program that is a person's editor: it tells what it was opened with, and writes what the test wants."""
    program = directory / "editor.py"
    program.write_text("""
import os, sys
path = sys.argv[-1]
with open(path, encoding="utf-8") as file:
    text = file.read()
with open(os.environ["EDITED"] + ".new", "w", encoding="utf-8") as file:
    file.write(f"{path}\\n{text}")
os.replace(os.environ["EDITED"] + ".new", os.environ["EDITED"])
if os.path.exists(os.environ["WRITES"]):
    with open(os.environ["WRITES"], encoding="utf-8") as wanted, open(path, "w", encoding="utf-8") as file:
        file.write(wanted.read())
""")
    return program
