"""Progress of `callboard demo`: the words and calls of each agent, in lines of at most 80 columns.

The demo starts `callboard run` and `callboard resume` with `CALLBOARD_DEMO` in their environment: the path of a file.
The variable selects this display. After the kill a tree would remain half drawn on the screen, and the lines of
`PlainLines` are too long for a small terminal.

The display also appends reports for the demo to that file: the id of the run, each question, each answer, and the
totals of tokens and cost. A report is one line with a JSON list, for example `["question", "q-1"]`. Unlike a pipe,
the file survives the process that is killed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from ...protocol import events as ev
from ...protocol.events import TERMINAL, Event
from .progress import ProgressDisplay
from .text import colours, one_line, paint, safe, uncoloured

_WIDEST = 80
_NAME = 13
"""Columns of the name at the start of a line."""

_SHOWN = {"fs_grep": "pattern", "fs_read": "path", "fs_ls": "path", "fs_edit": "path", "execute_command": "command"}
"""Argument that is printed for a call of each tool."""

_TOOL = re.compile(r"(?:fs_\w+|execute_\w+|agent__\w+)(?:#\d+)?")
_CHILD = re.compile(r"agent_([\w-]+)_[0-9a-f]{8}")


class DemoDisplay(ProgressDisplay):
    """Display of one process of the demo.

    Args:
        stream: terminal to write to.
        file: file for the reports.
    """

    def __init__(self, stream: TextIO, file: Path) -> None:
        self._stream = stream
        self._file = file
        self._coloured = colours(stream)
        self._scripts: dict[str, str] = {}
        self._texts: dict[tuple[str, str], str] = {}
        self._live = ""  # the actor whose reply is on the screen while it grows
        self._column = 0
        self._asks = 0
        self._waiting: list[str] = []
        self._used: dict[str, tuple[int, int, float, bool]] = {}

    def on_event(self, event: Event) -> None:
        """Print an event and report it."""
        with suppress(OSError):  # the terminal is closed, or the demo has removed the file
            self._handle(event)

    def note(self, text: str) -> None:
        """Print a line that is not an event."""
        with suppress(OSError):
            self._print("", text)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Hold back lines until the question is off the screen."""
        self._asks += 1
        try:
            yield
        finally:
            self._asks -= 1
            if not self._asks:
                waiting, self._waiting = "".join(self._waiting), []
                with suppress(OSError):
                    self._write(waiting)

    def _handle(self, event: Event) -> None:
        data = event.data
        match data:
            case ev.RunStarted():
                self._report("run", event.run, os.getpid())
            case ev.NodeEntered(type="script"):
                self._scripts[event.actor] = data.node
            case ev.LlmRequest() if self._is_live(data.model):
                self._begin_live(event.actor, data.model)
            case ev.LlmDelta():
                if event.actor == self._live:
                    self._grow(data.text)
                else:
                    key = (event.actor, event.id)
                    self._texts[key] = self._texts.get(key, "") + data.text
            case ev.LlmResponse() | ev.LlmFailed():
                self._end_reply(event)
            case ev.ToolStarted(origin="family"):
                self._child_call(event.actor, data.tool, data.arguments)
            case ev.ToolStarted() if event.actor not in self._scripts:
                self._print(event.actor, f"{data.tool} {_main_argument(data.tool, data.arguments)}", "title")
            case ev.ToolDelta() if event.actor in self._scripts and data.text.strip():
                self._print(event.actor, uncoloured(data.text), "title")
            case ev.ToolFinished() if event.actor not in self._scripts:
                self._tool_finished(event.actor, data)
            case ev.Warned():
                self._print("", f"warning: {data.message}", "warning")
            case ev.QuestionAsked():
                self._report("question", event.id)
            case ev.QuestionAnswered():
                self._report("answered", event.id)
            case ev.UsageUpdate():
                self._used[data.model] = (data.input_tokens, data.output_tokens, data.cost, data.priced)
                self._report("used", *_sum(self._used))
        if data.kind in TERMINAL:
            self._report("end", data.kind)

    # --- replies --------------------------------------------------------------------------------------------

    def _is_live(self, model: str) -> bool:
        """Return whether to print the reply while it arrives. Only the local model works alone."""
        return model.startswith("local:") and not self._live

    def _begin_live(self, actor: str, model: str) -> None:
        self._live = actor
        self._print(actor, f"asks {model}, live on this machine", "dim")
        self._column = 0

    def _grow(self, text: str) -> None:
        """Write a piece of the reply, with line breaks between words."""
        for word in re.findall(r"\s*\S+|\s+", safe(text)):
            if self._column and self._column + len(word) > _width() - _NAME and word.strip():
                self._write("\n")
                self._column, word = 0, word.lstrip()
            if not self._column:
                word = word.lstrip()
                self._write(" " * (_NAME + 1) if word else "")
            self._write(paint(word, "added") if self._coloured else word)
            self._column += len(word)

    def _end_reply(self, event: Event) -> None:
        if event.actor == self._live:
            self._write("\n" if self._column else "")
            self._live = ""
        elif said := self._texts.pop((event.actor, event.id), "").strip():
            self._print(event.actor, f'"{" ".join(said.split())}"', "text")

    # --- calls ----------------------------------------------------------------------------------------------

    def _child_call(self, actor: str, tool: str, arguments: str) -> None:
        given = _parsed(arguments)
        match tool:
            case "agent__spawn":
                self._print(actor, f"starts {given.get('agent')}: {given.get('prompt')}")
            case "agent__collect":
                child = _CHILD.fullmatch(str(given.get("id")))
                self._print(actor, f"waits for {child[1] if child else given.get('id')}")

    def _tool_finished(self, actor: str, data: ev.ToolFinished) -> None:
        if data.error is not None:
            self._print(actor, f"= {one_line(data.error, 200)}", "error")
        elif data.tool in ("execute_command", "fs_edit") and (lines := data.result.strip().splitlines()):
            self._print(actor, f"= {' '.join(line for line in lines[-2:] if line.strip())}")

    # --- lines ----------------------------------------------------------------------------------------------

    def _name(self, actor: str) -> str:
        """Return the agent or script of an actor or of its call, indented by its depth."""
        if actor in self._scripts:
            return self._scripts[actor]
        name = actor.rpartition("/")[2]
        if _TOOL.fullmatch(name):
            actor = actor.rpartition("/")[0]
            name = actor.rpartition("/")[2]
        return "  " * actor.count("/children/") + name

    def _print(self, actor: str, text: str, style: str = "dim") -> None:
        lead = f"{self._name(actor):<{_NAME}} " if actor else ""
        rows = textwrap.wrap(safe(" ".join(text.split())), _width() - len(lead)) or [""]
        for number, row in enumerate(rows):
            painted = paint(row, style) if self._coloured else row
            self._write(f"{lead if not number else ' ' * len(lead)}{painted}\n")

    def _write(self, text: str) -> None:
        if self._asks:
            self._waiting.append(text)
            return
        self._stream.write(text)
        self._stream.flush()

    def _report(self, *words: Any) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(words) + "\n")


def _sum(used: Mapping[str, tuple[int, int, float, bool]]) -> tuple[int, int, float, bool]:
    figures = list(used.values())
    return (
        sum(each[0] for each in figures),
        sum(each[1] for each in figures),
        sum(each[2] for each in figures),
        all(each[3] for each in figures),
    )


def _width() -> int:
    return min(_WIDEST, shutil.get_terminal_size((_WIDEST, 24)).columns) - 1


def _parsed(arguments: str) -> dict[str, Any]:
    try:
        given = json.loads(arguments or "{}")
    except ValueError:  # its middle was left out
        return {}
    return given if isinstance(given, dict) else {}


def _main_argument(tool: str, arguments: str) -> str:
    given = _parsed(arguments)
    value = given.get(_SHOWN.get(tool, ""), next(iter(given.values()), ""))
    return one_line(value if isinstance(value, str) else json.dumps(value), 100)
