"""All tools that one agent may call: its own file's, functions given to the run, the global ones it lists.

Of two of one name the first in this order is meant.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from .collect import AgentTools, ToolOptions, judged_as_ours
from .tool import TIMEOUT, Tool

if TYPE_CHECKING:
    from ....supervisors import Actor
    from .collect import Shelf


class ToolsOfAgent(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent may call.

    Attributes:
        tools: by name, its own first.
        instructions: runs `_instructions` of its tools file; None if it has none.
    """

    tools: Mapping[str, Tool]
    instructions: Callable[[Actor], Awaitable[str]] | None = None


class ToolSources(Protocol):
    """Where the tools of a run come from; see `RunContext`."""

    @property
    def shelf(self) -> Shelf | None:
        """The tools there are; None in a run that has none."""

    @property
    def tool_options(self) -> ToolOptions | None:
        """What the user of the run says about them."""

    @property
    def functions(self) -> tuple[Tool, ...]:
        """Python functions that the caller gave to the run."""


NOTHING = ToolsOfAgent(tools={})


def tools_of_agent(
    run: ToolSources,
    *,
    name: str,
    directory: Path | None,
    listed: Iterable[str],
    values: Mapping[str, str],
    timeout: float | None = None,
) -> ToolsOfAgent:
    """Find them.

    Args:
        directory: of the agent; None for one that has none.
        listed: `global_tools` of its file; what stands for no tool is left out.
        values: its variables.
        timeout: seconds of a call to a tool file; None for the usual number.

    Raises:
        InvalidFile: a tool file has errors.
        ConfigError: a `.env` file has errors.
    """
    functions = {tool.name: judged_as_ours(tool) for tool in run.functions}
    shelf = run.shelf
    listed = list(listed)
    if shelf is None or not (listed or (directory is not None and shelf.has_file(directory))):
        return ToolsOfAgent(tools=functions) if functions else NOTHING
    options = run.tool_options or ToolOptions()
    home = shelf.home(directory=directory, agent=name, values=values, options=options)
    own = AgentTools() if directory is None else shelf.of_agent(directory, home, timeout or TIMEOUT)
    found = (*own.tools, *functions.values(), *shelf.named(listed, home, options, timeout or TIMEOUT))
    tools = {tool.name: tool for tool in reversed(found)}
    in_order = {tool.name: tools[tool.name] for tool in found}
    return ToolsOfAgent(tools=in_order, instructions=own.instructions)
