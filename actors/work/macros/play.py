"""Plays a macro: each step is a line of the chat, given to `play` of a state of its own.

The caller brings the language. It makes a fresh state (no role, session, knowledge or agent: only model and sampling
are those that the user has chosen), and a `play(line)` that plays a line in it as if the user had typed it. So nothing
that a macro does is left when it ends, unless the macro says `isolated: false` and is played in the caller's own state.
This module needs to know neither what `.role` does nor where answers go.

    await play_macro(macro, ["sql", "Which", "tables?"], play=conversation.copy().play, echo=print)

What `play` raises ends the macro: the steps behind it would work on something that is not there. A program that is
not in an event loop takes the lines from `lines_of`, as `callboard macro` does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ....protocol.errors import UsageError
from ....protocol.macro import Macro

NOT_IN_MACROS = (".edit", ".install", ".macro", ".update", ".vault")
"""Commands that need a person, change what is installed, or would play macros in macros without an end."""


def lines_of(macro: Macro, arguments: Sequence[str]) -> tuple[str, ...]:
    """The lines that a macro plays with these arguments.

    Raises:
        UsageError: a variable has no value, or a step is a command that no macro may use.
    """
    lines = tuple(line for line in macro.rendered(macro.bound(arguments)) if line.strip())
    for line in lines:
        if (command := line.split(maxsplit=1)[0]) in NOT_IN_MACROS:
            raise UsageError(f"Cannot perform this operation because you are in a macro: `{command}`")
    return lines


async def play_macro(
    macro: Macro, arguments: Sequence[str], *, play: Callable[[str], Awaitable[None]], echo: Callable[[str], None]
) -> None:
    """Play all steps in order. Nothing is played where `lines_of` raises.

    Args:
        arguments: the values of its variables.
        play: plays a line of the chat; see the module.
        echo: gets each line as `>> line` before it is played.
    """
    for line in lines_of(macro, arguments):
        echo(f">> {line}")
        await play(line)
