"""A configuration directory as Loki's installer lays it out, a project to work on, and a model that obliges."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from corpus.strangers import Family, Seen, cannot, needs
from support.fake_models import Request

FAMILIES: tuple[Family, ...] = ("loki-0.4.0", "coyote")

COMMANDS = {"type": "sample", "build": "echo built", "test": "echo tested", "check": "echo checked"}
"""What both keep of a project that they have looked at, so that they need no model (and no program of theirs)."""

_MISSING = (
    (re.compile(r"needs the program '([^']+)'"), "the program {}"),
    (re.compile(r"the environment variable '([^']+)' is required and not set"), "{} in the environment"),
    (re.compile(r"(?:^|/)([\w.-]+): (?:command )?not found"), "the program {}"),
    (re.compile(r"it needs (`tsx`)"), "tsx, or node 22.18"),
)


def installed(assets: Path, config: Path) -> Path:
    """Copy `assets` as the installer does, but for `mcp.json`: its servers are a matter of their own."""
    for name in ("agents", "roles", "macros", "skills"):
        if (assets / name).is_dir():
            shutil.copytree(assets / name, config / name, dirs_exist_ok=True)
    for name in ("tools", "utils"):
        shutil.copytree(assets / "functions" / name, config / "functions" / name, dirs_exist_ok=True)
    return config


def project(directory: Path) -> Path:
    """A small repository with a change that is not committed."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in (".loki-project.json", ".coyote-project.json"):
        (directory / name).write_text(json.dumps(COMMANDS))
    (directory / "notes.md").write_text("# Cake\n\nflour\neggs\n")
    (directory / "more.md").write_text("# Bicycle\n")
    git = ["git", "-C", str(directory), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    (directory / "more.md").write_text("# Bicycle\n\ntwo wheels\n")
    return directory


def lacking(text: str) -> Seen | None:
    """What a failure says that this machine has not."""
    for pattern, words in _MISSING:
        if found := pattern.search(text):
            return needs(words.format(found[1].strip("`")))
    return None


def failed(text: str) -> Seen:
    """What a failure comes to."""
    return lacking(text) or cannot(" ".join(text.split())[:300])


# --- the model ------------------------------------------------------------------------------------------------


def obliging(request: Request) -> str:
    """The least that fits the JSON Schema a request asks for, else a short text."""
    shape = request.json.get("response_format", {}).get("json_schema", {}).get("schema")
    if shape is None:
        shape = next(_schemas_in(f"{request.system}\n{request.prompt}"), None)
    return "Nothing to complain about." if shape is None else json.dumps(least(shape))


def _schemas_in(text: str) -> Iterator[dict[str, Any]]:
    for found in re.finditer(r"JSON Schema[^\n]*\n\n(?=\{)", text):
        value, _ = json.JSONDecoder().raw_decode(text, found.end())
        yield value


def least(schema: dict[str, Any]) -> Any:
    """A small value that fits."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object":
        return {name: least(part) for name, part in schema.get("properties", {}).items()}
    if kind == "array":
        return [least(schema.get("items", {"type": "string"}))] * max(1, schema.get("minItems", 1))
    return {"string": "a", "integer": 1, "number": 1, "boolean": True}.get(str(kind), "a")
