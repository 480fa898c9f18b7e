"""Extraction of user-visible messages from the product's source.

A message is a string constant or an f-string with at least three lower-case words, outside docstrings and SQL. Its id
is the module path and the qualified name of the function or class that contains it: `engine.graph.checks.check_nodes`.
The second message of the same function is `engine.graph.checks.check_nodes.2`. The id does not depend on the text, so
rewording a message keeps it. The prefix `actors.` is left out.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "messages.txt"

_PACKAGES = ("actors", "supervisors", "protocol", "cli")
_DATA = {"library", "templates"}  # agents and files that are shipped, not messages
_SQL = re.compile(
    r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|ALTER|DROP|WITH|BEGIN|ATTACH|VACUUM|REPLACE|LOCK|NOTIFY)\b"
)
_ESCAPED = re.compile(r"\\(?:[\\bfnrt]|u[0-9a-f]{4})")


def extract_messages() -> dict[str, str]:
    """Return the template of each message by id, in the order of modules and lines."""
    found: dict[str, str] = {}
    for package in _PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            relative = path.relative_to(ROOT)
            if not _DATA & set(relative.parts):
                found.update(_messages_of(path, _module_name(relative)))
    return found


def read_golden() -> dict[str, str]:
    """Return the templates of the golden file by id; escapes are undone."""
    lines = GOLDEN.read_text(encoding="utf-8").splitlines() if GOLDEN.exists() else []
    pairs = (line.split("  ", 1) for line in lines)
    return {key: _ESCAPED.sub(lambda m: json.loads(f'"{m[0]}"'), text) for key, text in pairs}


def format_golden(messages: dict[str, str]) -> str:
    """Return the content of the golden file: a line `<id>  <template>` for each message."""
    return "".join(f"{key}  {_escape(text)}\n" for key, text in messages.items())


def _escape(text: str) -> str:
    return "".join(char if char.isprintable() and char != "\\" else json.dumps(char)[1:-1] for char in text)


def _module_name(relative: Path) -> str:
    parts = relative.with_suffix("").parts
    parts = parts[1:] if parts[0] == "actors" else parts
    return ".".join(part for part in parts if part != "__init__") or "actors"


def _messages_of(path: Path, module: str) -> Iterator[tuple[str, str]]:
    count: Counter[str] = Counter()
    for owner, text in _texts(ast.parse(path.read_text(encoding="utf-8")), module):
        count[owner] += 1
        yield (owner if count[owner] == 1 else f"{owner}.{count[owner]}"), text


def _texts(node: ast.AST, owner: str) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue  # a docstring
        if isinstance(child, ast.JoinedStr) or (isinstance(child, ast.Constant) and isinstance(child.value, str)):
            text = _template(child)
            if _is_sentence(text):
                yield owner, text
            for part in child.values if isinstance(child, ast.JoinedStr) else ():
                yield from _texts(part, owner)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _texts(child, f"{owner}.{child.name}")
        else:
            yield from _texts(child, owner)


def _template(node: ast.JoinedStr | ast.Constant) -> str:
    """Return the text with `{expression}` for each value and `{{`, `}}` for literal braces."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(_part(part) for part in parts)


def _part(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value).replace("{", "{{").replace("}", "}}")
    assert isinstance(part, ast.FormattedValue)
    expression = ast.unparse(part.value).replace("{", "(").replace("}", ")")  # dict displays; only read by people
    conversion = f"!{chr(part.conversion)}" if part.conversion != -1 else ""
    return f"{{{expression}{conversion}}}"


def _is_sentence(text: str) -> bool:
    literal = re.sub(r"\{[^{}]*\}", "", text)
    return " " in text and not _SQL.match(text) and len(re.findall(r"\b[a-z]{2,}\b", literal)) >= 3
