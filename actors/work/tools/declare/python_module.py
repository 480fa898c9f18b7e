"""What the names of a Python file mean, as far as its text tells: imports, classes, type aliases, constants."""

from __future__ import annotations

import ast
import math
from typing import Any

from .schemas import NO_VALUE

_DEEPEST = 50


class Module:
    """A parsed file.

    Attributes:
        classes: by name.
        assigned: the last value of each name that is assigned at the top level, which may be a type alias.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.classes: dict[str, ast.ClassDef] = {}
        self.assigned: dict[str, ast.expr] = {}
        self._imported: dict[str, str] = {}
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                self.classes[node.name] = node
            elif isinstance(node, ast.ImportFrom):
                self._imported.update((name.asname or name.name, name.name) for name in node.names)
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.assigned[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                self.assigned[node.target.id] = node.value
            elif type(node).__name__ == "TypeAlias":  # `type X = ...`, which Python 3.11 doesn't know
                alias: Any = node
                self.assigned[alias.name.id] = alias.value

    def original(self, node: ast.expr) -> str:
        """The name that is meant, "" if none: `t.List` is `List`, and so is `L` after `import List as L`."""
        if isinstance(node, ast.Attribute):
            return node.attr
        if not isinstance(node, ast.Name):
            return ""
        if node.id in self.classes or node.id in self.assigned:
            return node.id
        return self._imported.get(node.id, node.id)

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """The JSON value of an expression, or `NO_VALUE`: literals, constants of the file, members of its enums."""
        if depth > _DEEPEST:
            return NO_VALUE
        if isinstance(node, ast.Name):
            return self.value(self.assigned[node.id], depth + 1) if node.id in self.assigned else NO_VALUE
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self.classes:
            return self.members(self.classes[node.value.id]).get(node.attr, NO_VALUE)
        if isinstance(node, ast.Attribute) and node.attr == "value":  # `Color.RED.value`
            return self.value(node.value, depth + 1)
        if isinstance(node, ast.List | ast.Tuple):
            items = [self.value(item, depth + 1) for item in node.elts]
            return NO_VALUE if NO_VALUE in items else items
        if isinstance(node, ast.Dict):
            keys = [NO_VALUE if key is None else self.value(key, depth + 1) for key in node.keys]
            values = [self.value(item, depth + 1) for item in node.values]
            known = all(isinstance(key, str) for key in keys) and NO_VALUE not in values
            return dict(zip(keys, values, strict=True)) if known else NO_VALUE
        return _constant(node)

    def members(self, node: ast.ClassDef) -> dict[str, Any]:
        """The values of an enum's members, by name; `NO_VALUE` where only running it would tell."""
        found: dict[str, Any] = {}
        text = any(self.original(base) == "StrEnum" for base in node.bases)
        for item in node.body:
            if not isinstance(item, ast.Assign) or len(item.targets) != 1 or not isinstance(item.targets[0], ast.Name):
                continue
            name = item.targets[0].id
            if name.startswith("_"):
                continue
            if isinstance(item.value, ast.Call) and self.original(item.value.func) == "auto":
                numbers = [value for value in found.values() if isinstance(value, int)]
                found[name] = name.lower() if text else max(numbers, default=0) + 1
            else:
                found[name] = _constant(item.value)
        return found


def _constant(node: ast.expr) -> Any:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        number = _json_value(node.operand.value)
        return -number if isinstance(number, int | float) and not isinstance(number, bool) else NO_VALUE
    return _json_value(node.value) if isinstance(node, ast.Constant) else NO_VALUE


def _json_value(value: Any) -> Any:
    if isinstance(value, float):
        known = math.isfinite(value)
    elif isinstance(value, str):
        known = not any("\ud800" <= char <= "\udfff" for char in value)  # a lone surrogate is no JSON text
    elif isinstance(value, int):
        known = abs(value) < 2**63
    else:
        known = value is None
    return value if known else NO_VALUE
