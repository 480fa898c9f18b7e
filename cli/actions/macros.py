"""Macro files for `callboard macros`: list, description, editing and deletion.

An unreadable macro is listed with its error, so that the user can find it. `.macro` runs one; it imports the chat and
the engine, which a list does not need.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import msgspec

from ...actors.io.directories import config_dir as configured
from ...actors.io.named_files import FilePlace
from ...actors.io.settings import load_settings
from ...actors.work.macros import FILES
from ...protocol.errors import CallboardError, NotFound
from ...protocol.macro import Macro
from ..desktop import edit_file, edit_new
from ..render.text import columns, json_object, one_line, safe

_NEW = """\
# Lines of the chat, run one after another; docs/macros.md describes all keys.
description: Asks for one sentence.
variables:
  - name: topic
    rest: true
    default: the weather
steps:
  - .prompt Answer in one sentence.
  - 'What should I know about {{topic}}?'
"""


def list_macros(config_dir: str | None, *, as_json: bool) -> str:
    """Return all macros as text or JSON: the configuration directory's, then the built-in ones with other names."""
    base = _base(config_dir)
    listed = [_listed(place) for place in FILES.places(base)]
    if as_json:
        return json_object(macros=listed)
    own, ours = (_rows([each for each in listed if each["origin"] == origin]) for origin in ("yours", "built in"))
    none = "  none yet (to make one: callboard macros edit NAME)"
    lines = [f"yours ({safe(str(FILES.directory(base)))})", *(own or [none]), "built in"]
    return "\n".join([*lines, *(ours or ["  none (each is hidden by one of yours)"])]) + "\n"


def show_macro(name: str, config_dir: str | None, *, as_json: bool) -> str:
    """Return one macro with its steps and variables, as text or JSON.

    Raises:
        CallboardError: there is none, or its file has errors.
    """
    place = FILES.locate(name, _base(config_dir))
    macro = FILES.load(place)
    if as_json:
        return json_object(
            **_macro_row(place, macro),
            variables=msgspec.to_builtins(macro.variables),
            steps=list(macro.steps),
            problems=msgspec.to_builtins(macro.problems),
        )
    lines = [f"{safe(macro.called)} ({_origin(place)})"]
    lines += [f"  {safe(macro.description)}"] if macro.description else []
    lines += ["", *columns([["file", safe(str(place.file))], ["usage", f"callboard macro {safe(macro.usage)}"]])]
    rows = [
        [
            safe(each.name),
            "required" if each.default is None else f"={one_line(each.default, 40)}",
            one_line(each.description),
        ]
        for each in macro.variables
    ]
    lines += ["", "variables", *columns(rows)] if rows else []
    lines += ["", "steps", *(f"  {line}" for step in macro.steps for line in safe(step.rstrip("\n")).split("\n"))]
    lines += ["", "problems", *(f"  {safe(str(each))}" for each in macro.problems)] if macro.problems else []
    return "\n".join(lines) + "\n"


def edit_macro(name: str, config_dir: str | None) -> str:
    """Open a macro in the editor; return a message for the user.

    Raises:
        CallboardError: the name is invalid, there is no editor, or the file has errors afterwards.
    """
    base = _base(config_dir)
    place = FILES.place_for(name, base)
    new = not place.file.exists()
    editor = str(load_settings(base)[0].other.get("editor") or "")
    if new:
        # replace=False: another process may have written the macro since `exists`.
        FILES.write(place, _beginning(name, base), replace=False)
        if not edit_new(place.file, editor):
            return f"nothing was written, so there is no macro '{name}' of yours\n"
    else:
        edit_file(place.file, editor)
    macro = FILES.load(place)
    warnings = "".join(f"{safe(str(problem))}\n" for problem in macro.problems)
    return f"{warnings}{'wrote' if new else 'edited'} {place.file}\n\ncallboard macro {safe(macro.usage)}\n"


def delete_macro(name: str, config_dir: str | None) -> str:
    """Delete a macro; return a message for the user. Raises as `FILES.delete` does."""
    return f"deleted {FILES.delete(name, _base(config_dir))}\n"


def path_of(name: str | None, config_dir: str | None) -> str:
    """Return the file of one macro, which may be a built-in one; without a name, the directory of the user's macros."""
    base = _base(config_dir)
    return str(FILES.directory(base) if name is None else FILES.locate(name, base).file)


def _beginning(name: str, base: Path) -> str:
    try:
        return FILES.text_of(FILES.locate(name, base).file)
    except NotFound:
        return _NEW


def _base(config_dir: str | None) -> Path:
    return configured(config_dir, os.environ)[0]


def _listed(place: FilePlace) -> dict[str, Any]:
    try:
        return _macro_row(place, FILES.load(place))
    except CallboardError as failed:
        told = f"{one_line(str(failed).splitlines()[0], 200)} (callboard macros show {shlex.quote(place.name)})"
        return _macro_row(place, None, told)


def _macro_row(place: FilePlace, macro: Macro | None, error: str | None = None) -> dict[str, Any]:
    return {
        "name": place.name,
        "origin": _origin(place),
        "description": "" if macro is None else one_line(macro.description, 200),
        "usage": place.name if macro is None else macro.usage,
        "file": str(place.file),
        "error": error,
    }


def _rows(macros: list[dict[str, Any]]) -> list[str]:
    return columns(
        [
            [safe(each["usage"]), f"invalid: {each['error']}" if each["error"] else each["description"]]
            for each in macros
        ]
    )


def _origin(place: FilePlace) -> str:
    return "built in" if place.built_in else "yours"
