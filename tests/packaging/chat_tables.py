"""Writes the generated parts of docs/chat-commands.md: `python tests/packaging/chat_tables.py` (or `make docs`).

A test compares the file with what this makes, so that the page can't fall behind the table of commands.
"""

from __future__ import annotations

from pathlib import Path

from callboard.actors.front.chat.commands import load
from callboard.actors.front.chat.setting import KEYS
from callboard.actors.front.chat.table import COMMANDS, Command

PAGE = Path(__file__).parents[2] / "docs" / "chat-commands.md"


def commands() -> str:
    """Every command: what it does, what the chat has to be in, when it may be played."""
    load()
    rows = [f"| `{_cell(_called(each))}` | {_cell(each.about)} | {_cell(_when(each))} |" for each in COMMANDS.values()]
    return "\n".join(["| command | what it does | when |", "| --- | --- | --- |", *rows])


def keys() -> str:
    """Every key of `.set`."""
    rows = [
        f"| `{name}` | {_cell(key.about)} | {key.wanted} | {'session, role or agent' if key.session else 'chat'} |"
        for name, key in KEYS.items()
    ]
    return "\n".join(["| key | what it is | value | goes with |", "| --- | --- | --- | --- |", *rows])


def _called(command: Command) -> str:
    return f"{command.name} {command.usage}".rstrip()


def _when(command: Command) -> str:
    needs = [need if need.startswith(("no ", "empty ")) else f"in a {need}" for need in command.needs]
    needs = [need.replace("in a agent", "in an agent") for need in needs]
    needs += ["also while a run answers"] if command.at_work else []
    needs += ["not in macros"] if not command.in_macros else []
    return "; ".join(needs)


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
