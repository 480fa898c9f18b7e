"""From what a caller wants started to the arguments of `callboard.run`."""

from __future__ import annotations

import os
from typing import Any

from ...protocol.control.caller import Caller
from ...protocol.control.own import StartRun
from ...protocol.errors import Denied
from ..meter import Limits


def arguments_of(caller: Caller, wanted: StartRun) -> dict[str, Any]:
    """What to call `callboard.run` with.

    Raises:
        Denied: the caller may not start this, or not like this.
        UsageError: a limit that nothing could keep.
    """
    caller.need("run:agents")
    if not caller.has("run:files"):
        _refuse_paths(wanted)
    if (wanted.yes or wanted.allow) and not caller.has("answer:questions"):
        raise Denied("`yes` and `allow` need the scope 'answer:questions': they answer for a person")
    return {
        "target": wanted.target,
        "prompt": wanted.prompt,
        "model": wanted.model,
        "variables": wanted.variables,
        "state": wanted.state or None,
        "answers": wanted.answers,
        "compat": wanted.compat,
        "limits": Limits(
            timeout=wanted.timeout,
            max_turns=wanted.max_turns,
            max_tokens=wanted.max_tokens,
            max_cost=wanted.max_cost,
        ),
        "yes": wanted.yes,
        "allow": wanted.allow,
        "files": wanted.files,
        "knowledge": wanted.knowledge,
        "attach": wanted.attach,
    }


def _refuse_paths(wanted: StartRun) -> None:
    target = wanted.target
    if os.sep in target or "\0" in target or target in (".", "..") or target.endswith((".yaml", ".yml")):
        raise Denied("a target that is a path needs the scope 'run:files'; give the name of an agent")
    if wanted.files or wanted.attach:
        raise Denied("`files` and `attach` need the scope 'run:files': they are read on this machine")
