"""Plain language: words that docstrings and comments do without, and figures of the code that may only fall.

CONTRIBUTING.md says how texts are written. A text that passes can still be a riddle; one that fails nearly always is.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from .import_graph import MODULES, ROOT, import_graph, tree_of

FILES = 758
"""Files of the package at most, without the agents and tools that come with it."""

CLASS_NAMES_USED_AGAIN = 29
"""Names that two classes have, for example `Agent` of Python and of a file. A new class has a name of its own."""

CYCLES = 4
"""Groups of files that import each other, inside functions and for types included."""

RIDDLE = re.compile(r"(What|Who|Whose|How|Where|Which|Whether|Those|That|One|It|Something|See|As|Of|Like)\b")
"""First words of a docstring that do not name the thing."""

OBLIQUE = re.compile(
    r"\b([Nn]obody|[Ss]omebody|[Aa]nybody|[Ww]hoever|anew|go(?:es)? on|going on|gone on|went on|has leave|in its turn"
    r"|as it likes)\b"
)

STANDARD = {
    ("actors/work/tools/changes/run_changes.py", "anew"): "field of a stored journal row",
    ("protocol/cassette.py", "nobody"): "value of `reason` in files",
    ("protocol/kernel/events.py", "nobody"): "value of `reason` in events",
    ("supervisors/cluster/database.py", "anew"): "attribute",
    ("supervisors/escalation.py", "nobody"): "value of `reason` in events",
}
"""Oblique words that stay: names that users or files rely on, each with its kind."""

DATA = {"library", "templates", "devall"}
"""Directories of agents and tools for users, and of a copied interface; their docstrings are read by models."""

PRODUCT = {name: path for name, path in MODULES.items() if not DATA & set(path.parts)}


def documented(path: Path) -> Iterator[str]:
    """The docstrings of a module, its classes and functions."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def comments(path: Path) -> Iterator[str]:
    """The comments of a file that has an oblique word."""
    text = path.read_text(encoding="utf-8")
    if not OBLIQUE.search(text):  # most files: reading the tokens of all takes ten seconds
        return iter(())
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return (token.string for token in tokens if token.type == tokenize.COMMENT)


def cycles(imports: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Groups of modules of which each leads to each other."""

    def reached(start: str) -> set[str]:
        found, waiting = set[str](), [start]
        while waiting:
            new = imports[waiting.pop()] - found
            found |= new
            waiting += new
        return found

    below = {name: reached(name) for name in imports}
    mutual = {name: frozenset(other for other in found if name in below[other]) for name, found in below.items()}
    return {group for group in mutual.values() if group}


def test_cycles_are_found() -> None:
    assert cycles({"a": {"b"}, "b": {"a", "c"}, "c": set(), "d": {"d"}}) == {frozenset("ab"), frozenset("d")}


def test_docstrings_begin_with_the_name_of_the_thing_or_a_verb() -> None:
    texts = [(name, text) for name, path in PRODUCT.items() for text in documented(path)]
    wrong = [f"{name}: {text.splitlines()[0]}" for name, text in texts if RIDDLE.match(text)]
    assert wrong == []


def test_docstrings_and_comments_say_who_does_what() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), match[0])
        for path in PRODUCT.values()
        for text in (*documented(path), *comments(path))
        for match in OBLIQUE.finditer(text)
    }
    assert found == STANDARD.keys()


def test_figures_of_the_code_only_fall() -> None:
    classes = Counter(
        node.name for path in PRODUCT.values() for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef)
    )
    again = sorted(name for name, count in classes.items() if count > 1 and not name.startswith("_"))
    assert len(PRODUCT) <= FILES
    assert len(again) <= CLASS_NAMES_USED_AGAIN, again
    groups = cycles(import_graph(for_types=True))
    assert len(groups) <= CYCLES, groups
