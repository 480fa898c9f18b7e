"""Runs the functions that edges of a workflow name. A script: it imports nothing of ours.

Each line of stdin is a call `{kind, file, function, text}`, each line of stdout its answer, `{value}` or `{error}`.
Files are loaded when they are first called, under a name of their own, with their directory and that of
`functions/` on the path. A condition is called with the text; a processor that takes two arguments also gets the
dictionary that all processors of a run share.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

SHARED: dict[str, Any] = {}
FUNCTIONS: dict[tuple[str, str], Callable[..., Any]] = {}
MODULES: dict[str, object] = {}


def main() -> None:
    """Answer calls until there are no more."""
    calls = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # what functions print is not an answer
    sys.stdout.reconfigure(encoding="utf-8", errors="replace", line_buffering=True)  # type: ignore[union-attr] # the stream that Python opened
    sys.dont_write_bytecode = True
    for line in calls:
        call = json.loads(line)
        try:
            answer = {"value": value_of(call)}
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, it is the function's
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer, default=str).encode() + b"\n")


def value_of(call: dict[str, Any]) -> Any:
    """What the function says."""
    key = (call["file"], call["function"])
    if key not in FUNCTIONS:
        FUNCTIONS[key] = getattr(loaded(call["file"]), call["function"])
    function = FUNCTIONS[key]
    if call["kind"] == "condition":
        return bool(finished(function(call["text"])))
    return finished(function(call["text"], SHARED) if takes_two(function) else function(call["text"]))


def finished(value: Any) -> Any:
    """The result of a function, also of one that is async."""
    if inspect.isawaitable(value):
        import asyncio

        async def waited() -> Any:
            return await value

        return asyncio.run(waited())
    return value


def takes_two(function: Callable[..., Any]) -> bool:
    """Whether a second argument can be handed over by its place."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return True
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters) > 1


def loaded(path: str) -> object:
    """The module in a file, run once."""
    if path not in MODULES:
        directory = Path(path).parent
        for place in (str(directory.parent.parent), str(directory)):
            if place not in sys.path:
                sys.path.insert(0, place)
        name = f"_edge_functions_{len(MODULES)}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        MODULES[path] = module
    return MODULES[path]


if __name__ == "__main__":
    main()
