"""Macros: named sequences of chat lines, in `macros/NAME.yaml` of the configuration directory or in `library`.

`FILES` and `find` find and store them; `protocol.macro` defines the file format. `play_macro` executes one: it passes
each step to a function of the caller, which supplies the state and the commands. The caller creates a fresh state
without role, session, knowledge or agent; only model and sampling are the user's. The function executes a line in that
state as if the user had typed it. The macro therefore leaves no trace in the caller's state, unless it has `isolated:
false` and runs in that state. This module depends neither on the meaning of `.role` nor on the destination of answers.

    await play_macro(macro, ["sql", "Which", "tables?"], play=conversation.copy().play, echo=print)

An exception of that function ends the macro, because later steps would depend on a missing result. A program without an
event loop uses the lines from `lines_of`, as `callboard macro` does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from ...protocol.errors import UsageError
from ...protocol.macro import Macro, read_macro
from ..io.named_files import NamedFiles
from .library import MACROS

FILES = NamedFiles(kind="macro", scope="read:agents", folder="macros", suffix=".yaml", ours=MACROS, read=read_macro)


def find(name: str, base: Path) -> Macro:
    """Return the macro of this name.

    Raises:
        NotFound: there is no such macro.
        InvalidFile: its file has errors, or is not text.
    """
    return FILES.load(FILES.locate(name, base))


NOT_IN_MACROS = (".edit", ".install", ".macro", ".update", ".vault")
"""Commands that need a person, change the installation, or would run macros recursively without end."""


def lines_of(macro: Macro, arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the lines of a macro with these arguments.

    Raises:
        UsageError: a variable has no value, or a step is a command that macros may not use.
    """
    lines = tuple(line for line in macro.rendered(macro.bound(arguments)) if line.strip())
    for line in lines:
        if (command := line.split(maxsplit=1)[0]) in NOT_IN_MACROS:
            raise UsageError(f"Cannot perform this operation because you are in a macro: `{command}`")
    return lines


async def play_macro(
    macro: Macro, arguments: Sequence[str], *, play: Callable[[str], Awaitable[None]], echo: Callable[[str], None]
) -> None:
    """Execute all steps in order. Executes none if `lines_of` raises.

    Args:
        arguments: the values of its variables.
        play: executes a chat line; see the module.
        echo: called with each line as `>> line` before it is executed.
    """
    # `lines_of` checks all lines first, so a forbidden command never stops a macro halfway.
    for line in lines_of(macro, arguments):
        echo(f">> {line}")
        await play(line)
