"""Roles for `callboard roles`: list, description, and saving, editing and deleting their files.

An unreadable role is listed with its error, so that the user can find it.
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
from ...actors.work.roles import FILES, find, locate, save
from ...protocol.errors import CallboardError, Conflict, InvalidFile, UsageError
from ...protocol.problems import errors_in
from ...protocol.role import Role, RoleFile
from ..desktop import edit_file, edit_new
from ..render.text import columns, counted, json_object, one_line, safe

_OF_TEXT = ("name", "description", "prompt", "use_tools")
"""Keys that `_settings` leaves out: they are shown elsewhere, or not at all."""


def list_roles(config_dir: str | None, *, as_json: bool) -> str:
    """Return all roles as text or JSON: the configuration directory's, then the built-in ones with other names."""
    base = _base(config_dir)
    listed = [_listed(place) for place in FILES.places(base)]
    if as_json:
        return json_object(roles=listed)
    own = [each for each in listed if each["origin"] == "yours"]
    ours = [each for each in listed if each["origin"] == "built in"]
    none = "  none yet (to make one: callboard roles edit NAME)"
    lines = [f"yours ({safe(str(FILES.directory(base)))})", *(_rows(own) or [none]), "built in"]
    return "\n".join([*lines, *(_rows(ours) or ["  none (each is hidden by one of yours)"])]) + "\n"


def show_role(name: str, config_dir: str | None, *, as_json: bool) -> str:
    """Return one role with its settings and text, as text or JSON.

    Raises:
        CallboardError: there is none, its file has errors, or its arguments don't fit.
    """
    base = _base(config_dir)
    place = locate(name, base)
    # `find` refuses a role whose arguments are missing; without any, its placeholders are shown.
    role = find(name, base) if "#" in name else FILES.load(place)
    if as_json:
        return json_object(
            **_role_as_json(place, role),
            settings=_settings(role),
            system=role.system,
            embedded=role.embedded,
            examples=msgspec.to_builtins(role.examples),
            problems=msgspec.to_builtins(role.problems),
        )
    facts = [["file", safe(str(place.file))]]
    facts += [[key.replace("_", " "), one_line(_in_words(value), 200)] for key, value in _settings(role).items()]
    if role.arguments:
        facts.append(["arguments", "#".join([role.called, *(f"ARG{n}" for n in range(1, role.arguments + 1))])])
    lines = [f"{safe(role.called)} ({role.kind}, {_origin(place)})"]
    lines += [f"  {safe(role.description)}"] if role.description else []
    lines += ["", *columns(facts), *_section("system prompt", role.system)]
    lines += _section("your prompt becomes", role.embedded or "")
    for example in role.examples:
        lines += [*_section("example", example.input), *_section("answer", example.output)]
    lines += ["", "problems", *(f"  {safe(str(each))}" for each in role.problems)] if role.problems else []
    lines += ["", "example", f"  callboard ask -r {shlex.quote(_usage(role))} PROMPT"]
    return "\n".join(lines) + "\n"


def save_role(name: str, data: bytes, config_dir: str | None, *, force: bool) -> str:
    """Store a text as a role; return a message for the user.

    Raises as `save` does, and `InvalidFile` if the text is not UTF-8. Without `force`, an existing role raises
    `Conflict`.
    """
    base = _base(config_dir)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidFile(f"standard input is not a role: it is not UTF-8 text ({error.reason})") from None
    try:
        role, new = save(name, text, base, replace=force)
    except Conflict as error:
        raise Conflict(f"{error}; --force replaces it") from None
    warnings = "".join(f"{safe(str(problem))}\n" for problem in role.problems)
    return f"{warnings}{'wrote' if new else 'replaced'} {FILES.directory(base) / f'{name}.md'}\n{_hides(name, new)}"


def edit_role(name: str, config_dir: str | None) -> str:
    """Open a role in the editor; return a message for the user.

    Raises:
        CallboardError: the name is invalid, there is no editor, or the file has errors afterwards.
    """
    base = _base(config_dir)
    file = FILES.place_for(name, base).file
    new = not file.exists()
    editor = str(load_settings(base)[0].other.get("editor") or "")
    if new:
        save(name, _beginning(name, base), base)
        if not edit_new(file, editor):
            return f"nothing was written, so there is no role '{name}' of yours\n"
    else:
        edit_file(file, editor)
    role = FILES.load(FilePlace(name=name, file=file, built_in=False))
    warnings = "".join(f"{safe(str(problem))}\n" for problem in role.problems)
    done = f"{'wrote' if new else 'edited'} {file}\n{_hides(name, new)}"
    return f"{warnings}{done}\ncallboard ask -r {shlex.quote(_usage(role))} PROMPT\n"


def delete_role(name: str, config_dir: str | None) -> str:
    """Delete a role; return a message for the user. Raises as `FILES.delete` does."""
    return f"deleted {FILES.delete(name, _base(config_dir))}\n"


def path_of(name: str | None, config_dir: str | None) -> str:
    """Return the file of one role, which may be a built-in one; without a name, the directory of the user's roles."""
    base = _base(config_dir)
    return str(FILES.directory(base) if name is None else locate(name, base).file)


_NEW = """\
---
# All keys are optional; docs/roles.md has the others.
# description: Purpose of the role, in a line.
# model: openai:gpt-4o-mini
# temperature: 0.2
# enabled_tools: fs_cat,fs_ls
---
You answer in one sentence.
"""


def _beginning(name: str, base: Path) -> str:
    """Return the first text of a user's role: the built-in role of that name, else an example."""
    try:
        return FILES.text_of(locate(name, base).file)
    except UsageError:
        return _NEW


def _base(config_dir: str | None) -> Path:
    return configured(config_dir, os.environ)[0]


def _listed(place: FilePlace) -> dict[str, Any]:
    try:
        return _role_as_json(place, FILES.load(place))
    except CallboardError as failed:
        return _role_as_json(place, None, error=_why_not(failed, place.name))


def _role_as_json(place: FilePlace, role: Role | None, error: str | None = None) -> dict[str, Any]:
    return {
        "name": place.name,
        "origin": _origin(place),
        "kind": None if role is None else role.kind,
        "description": "" if role is None else one_line(role.description, 200),
        "model": None if role is None else role.model,
        "arguments": 0 if role is None else role.arguments,
        "file": str(place.file),
        "error": error,
    }


def _why_not(error: CallboardError, name: str) -> str:
    errors = errors_in(error.problems) if isinstance(error, InvalidFile) else []
    if not errors:
        return one_line(str(error), 200)
    return f"{counted(len(errors), 'error')} (callboard roles show {shlex.quote(name)})"


def _rows(roles: list[dict[str, Any]]) -> list[str]:
    rows = []
    for role in roles:
        text = f"invalid: {role['error']}" if role["error"] else role["description"] or role["kind"]
        model = f" [{role['model']}]" if role["model"] else ""
        name = "#".join([role["name"], *(f"ARG{number}" for number in range(1, role["arguments"] + 1))])
        rows.append([safe(name), text + safe(model)])
    return columns(rows)


def _origin(place: FilePlace) -> str:
    return "built in" if place.built_in else "yours"


def _settings(role: Role) -> dict[str, Any]:
    """Return the values of the front matter by key, except unset ones and the keys in `_OF_TEXT`."""
    keys = [field for field in RoleFile.__struct_fields__ if field not in _OF_TEXT]
    found = {key: getattr(role, key) for key in keys if getattr(role, key) is not None}
    if role.tools is not None:
        found["enabled_tools"] = role.tools
    if role.servers is not None:
        found["enabled_mcp_servers"] = role.servers
    return {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}


def _in_words(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _usage(role: Role) -> str:
    return "#".join([role.called, *(f"ARG{number}" for number in range(1, role.arguments + 1))])


def _hides(name: str, new: bool) -> str:
    from ...actors.work.library import ROLES

    if new and (ROLES / f"{name}.md").is_file():
        return f"'{name}' now hides the built-in role of the same name\n"
    return ""


def _section(title: str, text: str) -> list[str]:
    return ["", title, *(f"  {line}" for line in safe(text).splitlines())] if text else []
