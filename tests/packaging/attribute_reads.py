"""Which fields of which classes the package reads: a probe that goes through the source of all its modules.

For every `thing.field` that is read, the class of `thing` is worked out from annotations as far as they go: those of
parameters, of variables, of fields, of functions that return it, and `isinstance`. Where that fails, the read counts
for every class that has such a field.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from .import_graph import BLOCKS, tree_of

ANY = "?"
"""The class of what can't be worked out."""

Names = frozenset[str]
_UNKNOWN: Names = frozenset({ANY})
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ANYTHING = {"Any", "object", "T", "Struct", "Self", "type", "Callable"}
_CONTAINERS = {"tuple", "list", "dict", "set", "frozenset", "Sequence", "Mapping", "Iterable", "Iterator", "None"}


_MAKERS = (ast.AnnAssign, ast.Assign, ast.NamedExpr, ast.For, ast.AsyncFor, ast.comprehension, ast.Call, ast.Lambda)
"""Nodes that may give a value to a variable."""


@cache
def _named(annotation: ast.expr | None) -> Names:
    """The classes that an annotation names, those inside of containers included."""
    if annotation is None:
        return _UNKNOWN
    words = set(_WORD.findall(ast.unparse(annotation)))
    names = words - _CONTAINERS
    return _UNKNOWN if not names or names & _ANYTHING else frozenset(names)


class Probe:
    """All that the modules of a package read.

    Attributes:
        reads: per field, the classes that it was read of; `ANY` where that is not known.
        texts: every text that stands in the code, for keys that are asked for by name.
    """

    def __init__(self, files: list[Path]) -> None:
        self.reads: dict[str, set[str]] = {}
        self.texts: set[str] = set()
        trees = [tree_of(file) for file in files]
        self._aliases: dict[str, Names] = {}
        self._returns: dict[str, Names] = {}
        self._fields: dict[tuple[str, str], Names] = {}
        for tree in trees:
            self._declare(tree)
        for tree in trees:
            self._look(tree)

    def reads_of(self, field: str, classes: set[str]) -> bool:
        """Whether something reads this field of one of these classes, or of what may be one."""
        return bool(self.reads.get(field, set()) & (classes | {ANY}))

    # what is declared

    def _declare(self, tree: ast.Module) -> None:
        for node in tree.body:
            if isinstance(node, ast.AnnAssign | ast.Assign) and (target := _target(node)) and node.value is not None:
                names = _named(node.value)
                if target[0].isupper() and not target.isupper():
                    self._aliases[target] = names
        for node in _statements(tree):
            if isinstance(node, ast.ImportFrom):
                for each in node.names:
                    if each.asname and each.asname[0].isupper():
                        self._aliases[each.asname] = frozenset({each.name})
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                known = self._returns.get(node.name)
                found = _named(node.returns)
                self._returns[node.name] = found if known is None else known | found
            elif isinstance(node, ast.ClassDef):
                self._declare_class(node)

    def _declare_class(self, cls: ast.ClassDef) -> None:
        for node in _statements(cls):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                self._fields[cls.name, node.target.id] = _named(node.annotation)
        for method in (node for node in cls.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            if any(isinstance(each, ast.Name) and each.id == "property" for each in method.decorator_list):
                self._fields[cls.name, method.name] = _named(method.returns)
            given = {each.arg: _named(each.annotation) for each in _arguments(method)}
            for node in _statements(method):
                target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
                if not (isinstance(target, ast.Attribute) and _is_self(target.value)):
                    continue
                if isinstance(node, ast.AnnAssign):
                    self._fields[cls.name, target.attr] = _named(node.annotation)
                elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
                    self._fields.setdefault((cls.name, target.attr), given.get(node.value.id, _UNKNOWN))

    # what is read

    def _look(self, tree: ast.Module) -> None:
        self._scope(tree, {}, "")

    def _scope(self, node: ast.AST, known: dict[str, Names], cls: str) -> None:
        if isinstance(node, ast.ClassDef):
            known, cls = {**known, "self": frozenset({node.name})}, node.name
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            known = self._variables(node, known, cls)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Constant):
                if isinstance(child.value, str):
                    self.texts.add(child.value)
                continue
            if isinstance(child, ast.expr_context | ast.operator | ast.cmpop):
                continue
            if isinstance(child, ast.MatchClass):
                for field in child.kwd_attrs:
                    self.reads.setdefault(field, set()).update(_named(child.cls))
            if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Load):
                self.reads.setdefault(child.attr, set()).update(self._class_of(child.value, known))
            self._scope(child, known, cls)

    def _variables(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, known: dict[str, Names], cls: str
    ) -> dict[str, Names]:
        known = dict(known)
        for each in _arguments(function):
            if each.arg != "self":
                known[each.arg] = _named(each.annotation)
        makers = [node for node in ast.walk(function) if isinstance(node, _MAKERS)]
        for _ in range(2):  # a variable may be made of one that is made below
            for node in makers:
                for name, names in self._made(node, known):
                    known[name] = names if known.get(name, _UNKNOWN) == _UNKNOWN else known[name] | names
        if "self" not in known and cls:
            known["self"] = frozenset({cls})
        return known

    def _made(self, node: ast.AST, known: dict[str, Names]) -> Iterator[tuple[str, Names]]:
        """Names that a statement or a part of one gives a value to, and what classes that may be of."""
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, _named(node.annotation)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, self._class_of(node.value, known)
        elif isinstance(node, ast.NamedExpr):
            yield node.target.id, self._class_of(node.value, known)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            names = self._class_of(node.iter, known)
            for target in ast.walk(node.target):
                if isinstance(target, ast.Name):
                    yield target.id, names
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            if isinstance(node.args[0], ast.Name):
                yield node.args[0].id, _named(node.args[1])
        elif isinstance(node, ast.Lambda):
            for each in node.args.args:
                yield each.arg, _UNKNOWN

    def _class_of(self, value: ast.expr, known: dict[str, Names]) -> Names:
        if isinstance(value, ast.Name):
            return self._spelled(known.get(value.id, _UNKNOWN))
        if isinstance(value, ast.Attribute):
            owners = self._class_of(value.value, known)
            found = [self._fields.get((owner, value.attr), _UNKNOWN) for owner in owners]
            return self._spelled(frozenset().union(*found)) if found else _UNKNOWN
        if isinstance(value, ast.Await):
            return self._class_of(value.value, known)
        if isinstance(value, ast.BoolOp):
            return frozenset().union(*(self._class_of(each, known) for each in value.values))
        if isinstance(value, ast.IfExp):
            return self._class_of(value.body, known) | self._class_of(value.orelse, known)
        if isinstance(value, ast.Subscript):
            return self._class_of(value.value, known)
        if isinstance(value, ast.Call):
            return self._called(value, known)
        return _UNKNOWN

    def _called(self, call: ast.Call, known: dict[str, Names]) -> Names:
        name = getattr(call.func, "id", "") or getattr(call.func, "attr", "")
        if name == "cast" and call.args:
            return _named(call.args[0])
        if name == "replace" and call.args:
            return self._class_of(call.args[0], known)
        if name in ("values", "items", "get", "pop", "copy") and isinstance(call.func, ast.Attribute):
            return self._class_of(call.func.value, known)
        if name in ("enumerate", "reversed", "list", "tuple", "sorted", "dict", "next", "iter") and call.args:
            return self._class_of(call.args[0], known)
        if name[:1].isupper() or name.lstrip("_")[:1].isupper():
            return frozenset({name})
        return self._spelled(self._returns.get(name, _UNKNOWN))

    def _spelled(self, names: Names) -> Names:
        """With what aliases stand for."""
        found = set(names)
        for name in names:
            found |= self._aliases.get(name, frozenset())
        return frozenset(found)


def _target(node: ast.AnnAssign | ast.Assign) -> str:
    target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
    return target.id if isinstance(target, ast.Name) else ""


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the node and all statements below it in the order of `ast.walk`, which visits ten times as many nodes."""
    left = deque([node])
    while left:
        node = left.popleft()
        yield node
        for block in BLOCKS:
            left.extend(getattr(node, block, ()))


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    given = function.args
    return [*given.posonlyargs, *given.args, *given.kwonlyargs]
