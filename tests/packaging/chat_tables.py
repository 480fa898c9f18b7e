"""Writes the generated parts of docs/chat-commands.md: `python tests/packaging/chat_tables.py` (or `make docs`).

A test compares the file with what this makes, so that the page can't fall behind the table of commands.
"""

from __future__ import annotations

from pathlib import Path

from callboard.actors.front.chat.command_line import COMMANDS
from callboard.actors.front.chat.commands import load
from callboard.actors.front.chat.options import KEYS

PAGE = Path(__file__).parents[2] / "docs" / "chat-commands.md"


def commands() -> str:
    """Every command: what it does, what the chat has to be in, when it may be played."""
    load()
    rows = [f"| `{_cell(each.called)}` | {_cell(each.about)} | {_cell(each.when)} |" for each in COMMANDS.values()]
    return "\n".join(["| command | what it does | when |", "| --- | --- | --- |", *rows])


def keys() -> str:
    """Every key of `.set`."""
    rows = [
        f"| `{name}` | {_cell(key.about)} | {key.wanted} | {'session, role or agent' if key.session else 'chat'} |"
        for name, key in KEYS.items()
    ]
    return "\n".join(["| key | what it is | value | goes with |", "| --- | --- | --- | --- |", *rows])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def page(text: str) -> str:
    """The page with its generated parts made anew."""
    return _with(_with(text, "commands", commands()), "keys", keys())


def _with(text: str, name: str, made: str) -> str:
    begin, end = f"<!-- {name}: written by `make docs` -->\n", f"<!-- end of {name} -->\n"
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n{made}\n\n{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
