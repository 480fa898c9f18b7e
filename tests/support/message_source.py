"""Extraction of user-visible messages from the product's source.

A message is a string constant or an f-string with at least three lower-case words. Docstrings, SQL, regular expressions
and texts that the code compares with (`"no such table" in str(error)`) are none. The id of a message is the module path
and the qualified name of the function or class that contains it: `engine.graph.checks.check_nodes`. The second message
of the same function is `engine.graph.checks.check_nodes.2`. The id does not depend on the text, so rewording a message
keeps it. The prefix `actors.` is left out.
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
    r"\s*(?:"
    r"(?:SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|ALTER|DROP|WITH|BEGIN|ATTACH|VACUUM|REPLACE|LOCK|NOTIFY)\b"
    r"|(?i:select\b.*\bfrom\b|select\s+\w+\(|insert\s+into\b|update\s+\S+\s+set\b|delete\s+from\b|values\s*\("
    r"|(?:create|alter|drop)\s+(?:or\s+replace\s+)?(?:table|index|unique|schema|function|trigger|sequence|type)\b"
    r"|with\s+(?:recursive\s+)?\w+\s+as\b|lock\s+table\b|(?:left\s+|inner\s+)?join\s+[\w.]+\s+\w+\s+on\b|where\s+[\w.(]+\s*(?:=|<|>|is\b|in\b))"
    r")"
    r"|.*\b(?:WHERE|ORDER BY|LEFT JOIN)\b",
    re.DOTALL,
)
"""Statements, in capitals or with the words that follow a keyword: "select a file" is a message."""
_COMPARING = {
    "startswith", "endswith", "partition", "rpartition", "removeprefix", "removesuffix", "find", "split", "count",
    "compile", "search", "match", "fullmatch", "sub", "finditer", "findall",
}  # fmt: skip
"""Methods of strings and functions of `re` whose arguments are looked for in other texts."""
_ESCAPED = re.compile(r"\\(?:[\\bfnrt]|u[0-9a-f]{4})")


def extract_messages(root: Path = ROOT) -> dict[str, str]:
    """Return the template of each message by id, in the order of modules and lines."""
    found: dict[str, str] = {}
    for path in source_files(root):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found.update((key, template_of(node)) for key, node in message_nodes(tree, path.relative_to(root)))
    return found


def source_files(root: Path = ROOT) -> list[Path]:
    """Return the modules that may contain messages."""
    files = (path for package in _PACKAGES for path in sorted((root / package).rglob("*.py")))
    return [path for path in files if not _DATA & set(path.relative_to(root).parts)]


def message_nodes(tree: ast.Module, relative: Path) -> Iterator[tuple[str, ast.JoinedStr | ast.Constant]]:
    """Yield the id and the node of each message of a module, whose path is relative to the root."""
    count: Counter[str] = Counter()
    for owner, node in _nodes(tree, _module_name(relative)):
        count[owner] += 1
        yield (owner if count[owner] == 1 else f"{owner}.{count[owner]}"), node


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


def _nodes(node: ast.AST, owner: str) -> Iterator[tuple[str, ast.JoinedStr | ast.Constant]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue  # a docstring
        if isinstance(child, ast.JoinedStr) or (isinstance(child, ast.Constant) and isinstance(child.value, str)):
            if not isinstance(node, ast.Compare | ast.MatchValue) and _is_sentence(template_of(child)):
                yield owner, child
            for part in child.values if isinstance(child, ast.JoinedStr) else ():
                yield from _nodes(part, owner)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _nodes(child, f"{owner}.{child.name}")
        elif isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute) and child.func.attr in _COMPARING:
            yield from _nodes(child.func, owner)
        else:
            yield from _nodes(child, owner)


def template_of(node: ast.JoinedStr | ast.Constant) -> str:
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
