"""The table of the built-in tools.

    tools = builtin_tools(environ, [project])
    tools["fs_read"].spec.parameters

A tool's code is imported when it is first called. Programs are ended a moment before the call's own time is up, so that
what they printed by then reaches the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ....io.imports import imported
from ..path_rules import FileAccess
from ..tool import TIMEOUT, Arguments, Json, Tool, ToolSpec
from .allowed_paths import AllowedPaths, Setting
from .specs import SPECS, Spec

if TYPE_CHECKING:
    from .....supervisors import Actor


def builtin_tools(
    environ: Mapping[str, str], roots: Sequence[Path] = (), *, here: Path | None = None, timeout: float = TIMEOUT
) -> dict[str, Tool]:
    """All built-in tools by name.

    Args:
        environ: what commands inherit, and where proxies, databases and services are named.
        roots: directories that `fs_*` may touch; none for the working directory. A relative path is seen from the
            working directory in any case, as it is by the commands that the same model runs.
        here: the working directory; None for ours.
        timeout: seconds of one call.
    """
    here = here or Path.cwd()
    setting = Setting(environ=environ, paths=AllowedPaths(roots or (here,), here), timeout=timeout)
    return {name: _tool(name, spec, setting) for name, spec in SPECS.items()}


def _tool(name: str, spec: Spec, setting: Setting) -> Tool:
    async def run(me: Actor, arguments: Arguments, access: FileAccess | None = None) -> Json:
        module = f"{__package__}.{spec.module}"
        await imported(module)
        function = getattr(import_module(module), name)
        return await function(me, setting if access is None else setting.within(access), arguments)

    return Tool(
        spec=ToolSpec(name=name, description=spec.description, parameters=spec.schema()),
        run=run,
        effect=spec.effect,
        origin="builtin",
        timeout=setting.timeout,
        subject=spec.subject,
        shell=spec.subject == "command",
        synonyms=spec.synonyms,
        reads=spec.reads,
        run_within=run,
    )
