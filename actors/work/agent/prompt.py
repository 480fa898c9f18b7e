"""System prompt of an agent: instructions with variables replaced, then a block for each usable tool family.

Variables are `{{name}}`: the agent's own (`variables`) and the special ones (`__os__`, `__now__`, ...). Values are
never expanded again, so a value cannot insert another variable. An unknown name remains in the text.

The blocks explain the built-in tools. They follow the instructions in fixed order, each after an empty line. Each can
be switched off (`inject_todo_instructions` ...) by an author who explains the tools in the instructions.
"""

from __future__ import annotations

import locale
import os
import platform
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ....protocol.agent import Agent
from ...io.environment import shell_of
from ..playback import value
from ..tools.tool import Tool

if TYPE_CHECKING:
    from ....supervisors import Actor

_NAME = re.compile(r"\{\{([A-Za-z0-9_-]+)\}\}")

TODO = """\
## Todo list
You have a todo list, kept for you outside of this conversation.
- Before you start on work of several steps, call `todo__init` with the goal, then `todo__add` once for each step.
- Call `todo__done` with a step's id as soon as that step is done, not later and not for several steps together.
- While steps are open you will be told to go on. When the goal no longer holds, call `todo__clear`."""

SPAWN = """\
## Child agents
You can hand work to other agents, which run beside you.
- `agent__spawn` starts one and returns its id at once. Its prompt is all that it knows: put in files, facts and what \
you expect back. Spawn several when their work is independent, then go on with your own.
- `agent__check` looks whether it has ended; `agent__collect` waits for it and returns its output, once.
- `agent__list` shows them all, `agent__cancel` ends one. At most {most} run at a time.
- `agent__task_create` queues work that waits for other work: `blocked_by` lists ids such as `task_1`; with `agent` \
and `prompt` it starts by itself when nothing blocks it any more. See `agent__task_list`, `agent__task_complete`, \
`agent__task_fail`.
- When a result holds `pending_escalations`, a child waits for an answer. Answer what you know with \
`agent__reply_escalation`; ask the user first if you don't. A person may answer it before you do."""

TEAMMATES = """\
## Messages
You work beside other agents. `agent__send_message` leaves a message for one of them, by id, or for `parent`, who \
spawned you. `agent__check_inbox` returns what was left for you; look into it before you give your answer."""

USER = """\
## Asking the user
When only the user can know or decide something, ask: `user__ask` (one of several options), `user__confirm` (yes or \
no), `user__input` (free text), `user__checkbox` (any number of options). Ask seldom, one thing at a time."""


def special_variables(
    environ: Mapping[str, str],
    tools: Iterable[Tool] = (),
    cwd: Path | None = None,
    machine: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the values of `__os__`, `__now__`, `__tools__` and the other special variables.

    Args:
        machine: recorded values of the variables about this machine and the time; None to read them now.
    """
    listed = [f"{number}. {tool.name}: {_first_line(tool.spec.description)}" for number, tool in enumerate(tools, 1)]
    return {
        **(_of_machine(environ) if machine is None else machine),
        "__cwd__": str(cwd or Path.cwd()),
        "__tools__": "\n".join(listed),
    }


def _of_machine(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        "__os__": platform.system().lower(),
        "__os_distro__": _distribution(),
        "__os_family__": "unix" if os.name == "posix" else os.name,
        "__arch__": platform.machine(),
        "__shell__": Path(shell_of(environ)).name,
        "__locale__": _locale(environ),
        "__now__": datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z",
    }


def filled_in(
    text: str,
    values: Mapping[str, str],
    environ: Mapping[str, str],
    tools: Iterable[Tool] = (),
    cwd: Path | None = None,
    me: Actor | None = None,
) -> str:
    """Return instructions with all variables replaced.

    A replay takes the values about the machine from its record, for `me`.
    """
    if "{{" not in text:
        return text
    # Recorded as a value, since it differs on another machine or at another time.
    machine = value(me, "variables", dict[str, str], partial(_of_machine, environ))
    known = {**special_variables(environ, tools, cwd, machine), **values}
    return _NAME.sub(lambda found: known.get(found.group(1), found.group(0)), text)


def blocks(agent: Agent, *, teammates: bool, user: bool) -> list[str]:
    """Return the blocks for the tool families of the agent, in order.

    Args:
        teammates: the agent has the messaging tools.
        user: the agent has the tools that ask the user.
    """
    said = []
    if agent.auto_continue and agent.inject_todo_instructions:
        said.append(TODO)
    if agent.can_spawn_agents and agent.inject_spawn_instructions:
        said.append(SPAWN.format(most=agent.max_concurrent_agents))
    if teammates and agent.inject_teammate_instructions:
        said.append(TEAMMATES)
    if user and agent.inject_user_instructions:
        said.append(USER)
    return said


def system_prompt(instructions: str, said: Iterable[str]) -> str:
    """Return instructions and blocks, separated by empty lines."""
    return "\n\n".join(part for part in (instructions.strip("\n"), *said) if part)


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return platform.system().lower()


def _locale(environ: Mapping[str, str]) -> str:
    name = environ.get("LC_ALL") or environ.get("LC_MESSAGES") or environ.get("LANG") or locale.getlocale()[0] or ""
    name = name.split(".", 1)[0].replace("_", "-")
    return "en-US" if name in ("", "C", "POSIX") else name
