"""Mutation sites: small changes of a module's syntax tree, with names that survive edits elsewhere in the file.

A site is named by its path, the qualified name of its function, the operator, the code that changes, and its number
among equal ones in that function. `locate` finds the site again in another commit, even if the module was renamed.

Sites exclude strings, docstrings, annotations, decorators, default arguments, `TYPE_CHECKING` blocks, assertions,
`__repr__` and logging: tests rarely assert on these, so a surviving change there says nothing about the suite.
"""

from __future__ import annotations

import ast
import hashlib
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}

LOGGERS = {"log", "logger", "logging", "_log", "_logger", "LOG", "LOGGER"}

LONGEST = 160
"""Maximum characters of code in the name of a site."""

OTHER_PROCESSES = {"workers", "runners", "guardian.py"}
"""Files and folders of code that runs in child processes, where the mutation is not in effect."""

NEEDS_POSTGRES = "supervisors/cluster/"
"""Folder whose tests need PostgreSQL and are not run."""


@dataclass(frozen=True)
class Mutation:
    """Name of a site."""

    path: str
    """Relative to the root of the package, with `/`."""
    function: str
    operator: str
    code: str
    number: int

    @property
    def id(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:10]


@dataclass(frozen=True)
class _Site:
    function: str
    operator: str
    code: str
    apply: Callable[[], None]


class _Sites(ast.NodeVisitor):
    """Visitor that collects the sites of a tree in source order."""

    def __init__(self) -> None:
        self.found: list[_Site] = []
        self.scope: list[str] = []
        self.functions = 0

    def add(self, operator: str, node: ast.AST, apply: Callable[[], None]) -> None:
        self.found.append(_Site(".".join(self.scope), operator, ast.unparse(node)[:LONGEST], apply))

    # --- scopes and excluded code

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in {"__repr__", "__str__"}:
            return
        self.scope.append(node.name)
        self.functions += 1
        self._body(node.body)
        self.functions -= 1
        self.scope.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = _function  # noqa: N815 - names that ast.NodeVisitor looks up

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.scope.append(node.name)
        self._body(node.body)
        self.scope.pop()

    def _body(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_Call(self, node: ast.Call) -> None:
        if not _logs(node):
            self.generic_visit(node)

    # --- operators

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1 and (other := COMPARISONS.get(type(node.ops[0]))):
            self.add("comparison", node, lambda: setattr(node, "ops", [other()]))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self.add("and-or", node, lambda: setattr(node, "op", other))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            # `not not x`: the truth of the operand, in the same node.
            operand = ast.UnaryOp(ast.Not(), node.operand)
            self.add("not-removed", node, lambda: setattr(node, "operand", operand))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Add | ast.Sub) and not any(map(_sequence, (node.left, node.right))):
            other = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            self.add("plus-minus", node, lambda: setattr(node, "op", other))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if not self.functions:
            return
        value = node.value
        if isinstance(value, bool):
            self.add("boolean", node, lambda: setattr(node, "value", not value))
        elif isinstance(value, int):
            self.add("constant", node, lambda: setattr(node, "value", value + 1))

    def visit_If(self, node: ast.If) -> None:
        text = ast.unparse(node.test)
        if "TYPE_CHECKING" in text or "__name__" in text:
            self._body(node.orelse)
            return
        self._negated(node)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negated(node)
        self.generic_visit(node)

    def _negated(self, node: ast.If | ast.IfExp) -> None:
        # Negating `not x` or one comparison is what other operators do.
        if not isinstance(node.test, ast.UnaryOp | ast.Compare):
            self.add("if-not", node.test, lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test)))

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self.add("return-none", node, lambda: setattr(node, "value", ast.Constant(None)))
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call) and self.functions and not _logs(call) and not _yields_only(call):
            self.add("call-removed", node, lambda: setattr(node, "value", ast.Constant(None)))
        self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        # `break` and `continue` have no field to change: replace them in the list that contains them.
        for _, value in ast.iter_fields(node):
            if isinstance(value, list):
                self._jumps(value)
        super().generic_visit(node)

    def _jumps(self, body: list[ast.AST]) -> None:
        for index, each in enumerate(body):
            if isinstance(each, ast.Break | ast.Continue):
                other = ast.Continue() if isinstance(each, ast.Break) else ast.Break()
                self.add("break-continue", each, lambda index=index, other=other: body.__setitem__(index, other))


def _logs(call: ast.Call) -> bool:
    function = call.func
    while isinstance(function, ast.Attribute | ast.Call):
        if isinstance(function, ast.Attribute) and function.attr in LOGGERS:
            return True
        function = function.value if isinstance(function, ast.Attribute) else function.func
    return isinstance(function, ast.Name) and function.id in LOGGERS


def _yields_only(call: ast.Call) -> bool:
    """Return True for `checkpoint()`: its removal only changes the order of tasks."""
    return ast.unparse(call.func).rpartition(".")[2].startswith("checkpoint")


def _sequence(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


@cache
def _named(source: str) -> tuple[ast.Module, list[tuple[tuple[str, str, str, int], _Site]]]:
    tree = ast.parse(source)
    visitor = _Sites()
    visitor.visit(tree)
    seen: Counter[tuple[str, str, str]] = Counter()
    named = []
    for site in visitor.found:
        name = (site.function, site.operator, site.code)
        named.append(((*name, seen[name]), site))
        seen[name] += 1
    return tree, named


def mutations(root: Path, path: str) -> Iterator[Mutation]:
    """Enumerate the mutations of a module."""
    _, named = _named((root / path).read_text())
    return (Mutation(path, *name) for name, _ in named)


def mutated(source: str, mutation: Mutation) -> ast.Module:
    """Return the tree of `source` with the mutation applied and line numbers unchanged.

    Raises: LookupError if the site does not exist.
    """
    _named.cache_clear()  # `apply` changes the cached tree in place
    tree, named = _named(source)
    _named.cache_clear()
    dict(named)[mutation.function, mutation.operator, mutation.code, mutation.number].apply()
    return ast.fix_missing_locations(tree)


def modules(root: Path, package: str) -> list[str]:
    """Return the modules below a folder that run in the test process."""
    return [
        path
        for path in sorted(each.relative_to(root).as_posix() for each in (root / package).rglob("*.py"))
        if not path.endswith("__init__.py")
        and not path.startswith(NEEDS_POSTGRES)
        and not OTHER_PROCESSES.intersection(path.split("/"))
    ]


def select(root: Path, packages: Iterable[str], count: int, seed: int) -> list[Mutation]:
    """Return `count` mutations, the same for the same code and seed.

    Packages alternate, so that a prefix of the selection is a fair sample. Within a package the operators alternate:
    most sites are returns and calls, which nearly any test kills. No function has two mutations.
    """
    queues = [_drawn(root, package, random.Random(f"{seed} {package}")) for package in packages]
    selected: list[Mutation] = []
    while queues and len(selected) < count:
        for queue in list(queues):
            mutation = next(queue, None)
            if mutation is None:
                queues.remove(queue)
            elif len(selected) < count:
                selected.append(mutation)
    return selected


def _drawn(root: Path, package: str, chance: random.Random) -> Iterator[Mutation]:
    by_operator: dict[str, list[Mutation]] = defaultdict(list)
    for path in modules(root, package):
        for mutation in mutations(root, path):
            by_operator[mutation.operator].append(mutation)
    for candidates in by_operator.values():
        chance.shuffle(candidates)
    used: set[tuple[str, str]] = set()
    while by_operator:
        for operator in sorted(by_operator):
            candidates = by_operator[operator]
            while candidates:
                mutation = candidates.pop()
                if (mutation.path, mutation.function) not in used:
                    used.add((mutation.path, mutation.function))
                    yield mutation
                    break
            else:
                del by_operator[operator]


def locate(root: Path, packages: Iterable[str], wanted: Mutation) -> Mutation | None:
    """Find a mutation in the code under `root`, or return None if it is gone.

    Lookup order: the same path, the only function of that name elsewhere, the only site elsewhere with the same code.
    """
    if (root / wanted.path).is_file() and wanted in mutations(root, wanted.path):
        return wanted
    same = [
        each
        for package in packages
        for path in modules(root, package)
        for each in mutations(root, path)
        if (each.operator, each.code, each.number) == (wanted.operator, wanted.code, wanted.number)
    ]
    for candidates in ([each for each in same if each.function == wanted.function], same):
        if len(candidates) == 1:
            return candidates[0]
    return None
