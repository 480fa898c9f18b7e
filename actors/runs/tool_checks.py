"""What is wrong with the tools that an agent's file lists, and with the agent's own tools file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from ...protocol.agent import Agent
from ...protocol.errors import ConfigError, InvalidFile
from ...protocol.graph import Graph
from ...protocol.problems import Problem
from ...protocol.settings import Settings
from ..settings import load_settings
from ..tools.collect import Shelf, agent_file, read_tool_file


def own_tools(directory: Path) -> tuple[list[str], list[Problem]]:
    """Names in the tools file of the agent in `directory`, and the file's problems."""
    try:
        path = agent_file(directory)
    except InvalidFile as error:
        return [], [Problem(severity="error", file=str(directory), code="tool_files", message=str(error))]
    if path is None:
        return [], []
    file = read_tool_file(path, agent=True)
    return [declaration.name for declaration in file.declarations], list(file.problems)


def check_listed(agent: Agent | Graph, own: Sequence[str], shelf: Shelf) -> list[Problem]:
    """A warning for every name in `global_tools` or `permissions` that stands for no tool.

    Args:
        own: names of the agent's own tools.
        shelf: the global ones.
    """
    problems = []
    for number, listed in enumerate(agent.global_tools):
        for name, hint in shelf.unknown([listed]):
            if name not in own:
                text = f"`global_tools` lists '{name}', and there is no such tool"
                problems.append(
                    agent.source.problem("warning", "unknown_tool", text, ("global_tools", number), hint=hint)
                )
    for name, hint in shelf.strangers(agent.permissions, own):
        text = f"`permissions` names '{name}', and there is no such tool"
        problems.append(agent.source.problem("warning", "unknown_tool", text, ("permissions", name), hint=hint))
    return problems


def check_user(allowed: Iterable[str], own: Sequence[str], shelf: Shelf, settings: Settings) -> list[Problem]:
    """A warning for every tool that the user's own permissions name and that is not there.

    The settings may well name tools of other agents' own files, so there only a near miss counts.

    Args:
        allowed: names given with `--allow`.
        own: names of tools that are not global.
    """
    strange = [("--allow", "command line", name, hint) for name, hint in shelf.strangers(allowed, own)]
    strange += [
        ("`permissions`", settings.file, name, hint)
        for name, hint in shelf.strangers(settings.permissions, own)
        if hint.startswith("did you mean")
    ]
    return [
        Problem(
            severity="warning",
            code="unknown_tool",
            message=f"{what} names '{name}', and there is no such tool",
            file=file,
            hint=hint,
        )
        for what, file, name, hint in strange
    ]


def shelf_of(base: Path) -> Shelf:
    """The global tools of a configuration directory, by its settings, or without any if they can't be read."""
    try:
        settings, _ = load_settings(base)
    except ConfigError:
        settings = Settings()  # the run will say so
    return Shelf(base, settings, os.environ)
