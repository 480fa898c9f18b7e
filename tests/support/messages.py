"""Texts of the product: extraction from the code, and reference by id in tests.

A text is a string of the product that a user may read: an error, a hint, a warning, a prompt, a printed line. All of
them are in tests/golden/messages.txt, one line each, as `make golden` writes it:

    actors.engine.graph.load.target  no node is called {name!r}

The id is the module and the function that has the text, with `#2` for the second text of a function. It does not
depend on the words, so a reworded text changes that one line. A test that needs the text says

    with pytest.raises(GraphMistake, match=says("actors.engine.graph.load.target", name="b")):

`says` gives a regular expression, in which a placeholder that is not given matches anything.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden/messages.txt"
PRODUCT = ("actors", "cli", "protocol", "supervisors")
_DATA = {"library", "templates"}
_WORD = re.compile(r"\b[a-z]{2,}\b")
_SQL = re.compile(
    r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|ALTER|DROP|WITH|BEGIN|ATTACH|VACUUM|REPLACE)\b", re.IGNORECASE
)
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def says(name: str, /, **given: object) -> str:
    """Return a regular expression for the text with this id.

    Args:
        name: its id in tests/golden/messages.txt.
        given: values of placeholders, by the last identifier in them: `{node.id!r}` is `id`.
    """
    text = _texts()[name]
    known = {placeholder_name(each) for each in _PLACEHOLDER.findall(text)}
    if unknown := given.keys() - known:
        raise LookupError(f"{name} has no placeholder {', '.join(sorted(unknown))}, only {', '.join(sorted(known))}")
    pattern, end = "", 0
    for found in _PLACEHOLDER.finditer(text):
        value = placeholder_name(found[1])
        pattern += re.escape(text[end : found.start()])
        pattern += re.escape(str(given[value])) if value in given else r"[\s\S]*"
        end = found.end()
    return pattern + re.escape(text[end:])


def placeholder_name(expression: str) -> str:
    """Return the last identifier of a placeholder's expression."""
    names = re.findall(r"[A-Za-z_]\w*", re.sub(r"![rsa]$|\[:.*\]$", "", expression.split(":")[0]))
    return names[-1] if names else expression


@cache
def _texts() -> dict[str, str]:
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    return {name: json.loads(text) for name, _, text in (line.partition("  ") for line in lines)}


def golden() -> str:
    """Return what tests/golden/messages.txt has to be."""
    lines = [f"{name}  {json.dumps(text, ensure_ascii=False)}" for name, text in texts_of_product()]
    return "\n".join(lines) + "\n"


def texts_of_product() -> Iterator[tuple[str, str]]:
    """Yield the id and the text of each; placeholders of f-strings are `{expression}`."""
    for folder in PRODUCT:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if _DATA.isdisjoint(path.parts):
                module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
                yield from texts_of(ast.parse(path.read_text(encoding="utf-8")), module)


def texts_of(tree: ast.AST, module: str) -> Iterator[tuple[str, str]]:
    counts: Counter[str] = Counter()
    for owner, text in _strings(tree, module):
        if is_sentence(text):
            counts[owner] += 1
            yield (owner if counts[owner] == 1 else f"{owner}#{counts[owner]}"), text


def _strings(node: ast.AST, owner: str) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        name = owner
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{owner}.{child.name}"
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue  # a docstring
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield name, child.value
        elif isinstance(child, ast.JoinedStr):
            yield name, "".join(_part(each) for each in child.values)
            for each in child.values:
                if isinstance(each, ast.FormattedValue):
                    yield from _strings(each, name)
        else:
            yield from _strings(child, name)


def _part(value: ast.expr) -> str:
    if isinstance(value, ast.Constant):
        return str(value.value)
    assert isinstance(value, ast.FormattedValue)
    conversion = f"!{chr(value.conversion)}" if value.conversion > 0 else ""
    inner = re.sub(r"[{}]", "|", ast.unparse(value.value))
    return f"{{{inner}{conversion}}}"


def is_sentence(text: str) -> bool:
    """True if a text has at least three words and is not SQL."""
    return " " in text and len(_WORD.findall(_PLACEHOLDER.sub("", text))) >= 3 and not _SQL.match(text)
