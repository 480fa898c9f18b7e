"""`.install` and `.update`: shared agents, roles, macros and tools, and newer versions of Callboard."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .....protocol.control.chat import split_words
from ....io.updating import how_to_update
from ....runs.root import result_of
from ....work.bundles import manage
from ....work.bundles.manage import InstallPrompts, InstallResult, Wishes
from ....work.bundles.source import BUILT_IN
from ..command_line import ChatLine, command

if TYPE_CHECKING:
    from .....supervisors import Actor

_KINDS = ("agents", "roles", "macros", "tools", "workflows", "mcp")


def _offered(words: Sequence[str]) -> list[tuple[str, str]]:
    ours = (
        [("builtin", "bundles built into Callboard, installed as files that you can edit")] if len(words) == 1 else []
    )
    return [*ours, *((kind, "") for kind in _KINDS)]


@command(
    ".install",
    "Install shared agents, roles, macros and tools",
    usage="<git-url[#ref]|directory|builtin> [agents|roles|macros|tools|workflows|mcp|name]...",
    scopes=("run:files",),
    in_macros=False,
    completes=lambda _, __, words: _offered(words),
)
async def _install(line: ChatLine) -> None:
    words = split_words(line.rest)
    if not words:
        for name, (bundle, changed) in manage.installed(line.root.config_dir).items():
            left = f"; you have edited {len(changed)} of its files" if changed else ""
            await line.say(f"{name}  {bundle.url}{left}")
        raise line.misused()
    source = BUILT_IN if words[0] in ("builtin", BUILT_IN) else words[0]
    if source in _KINDS:  # as in Loki: a kind alone selects the built-in files
        source, words = BUILT_IN, [BUILT_IN, *words]
    told: list[str] = []

    async def ask(text: str) -> bool:
        # Output before the question, which refers to it.
        await line.say("\n".join(told))
        told.clear()
        return await line.confirm(text)

    person = InstallPrompts(tell=told.append, ask=ask)
    wishes = Wishes(filters=tuple(words[1:]))

    async def install(me: Actor) -> InstallResult:
        base, here = line.root.config_dir, Path.cwd()
        return await manage.install(me, base, source, wishes, person, os.environ, here=here)

    done = await result_of(line.root, install, name="install")
    await line.say("\n".join([*told, *done.lines]))


@command(".update", "Show how to update callboard", usage="[version]", scopes=("run:files",), in_macros=False)
async def _update(line: ChatLine) -> None:
    await line.say(how_to_update(line.rest).rstrip())
