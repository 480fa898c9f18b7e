"""Types that annotations name, imported when something evaluates the annotations: `help`, `inspect`, `get_type_hints`.

    if TYPE_CHECKING:
        from ..work.models.python_model import Model
    else:
        defer(globals(), {"..work.models.python_model": "Model"})

`from __future__ import annotations` keeps annotations as texts, and each evaluation looks the names up in the globals
of the module. Names imported only for type checkers are not there, so `help(callboard.Agent)` would raise `NameError`.
Importing them at run time costs every program the modules that it does not use, and makes import cycles.

`typing.ForwardRef` is the object for such a name, and `typing` and msgspec evaluate it wherever it is in an annotation.
But it compiles its text when it is made, which takes 0.08 ms, and it does not import anything. So this is a subclass
that does neither; `typing` calls `_evaluate` in Python 3.11 to 3.13. From 3.14 on the class can't have subclasses, and
compiles its text at the first evaluation.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ForwardRef

if sys.version_info >= (3, 14):

    def _deferred(module: str, package: str, name: str) -> Any:
        return ForwardRef(f"__import__('importlib').import_module({module!r}, {package!r}).{name}")

else:

    class _Deferred(ForwardRef, _root=True):  # type: ignore[call-arg,misc]  # final in its stub; `_root` permits subclasses
        __slots__ = ("_module", "_package")

        def __init__(self, module: str, package: str, name: str) -> None:
            self._module, self._package = module, package
            self.__forward_arg__ = name
            self.__forward_module__ = module
            self.__forward_evaluated__ = False
            self.__forward_is_argument__ = True
            self.__forward_is_class__ = False

        def _evaluate(self, *_: Any, **__: Any) -> Any:
            try:
                return getattr(import_module(self._module, self._package), self.__forward_arg__)
            except ModuleNotFoundError:  # it belongs to an extra that is not installed
                return Any

        def __getitem__(self, arguments: Any) -> Any:
            return self._evaluate()[arguments]

    _deferred = _Deferred


def defer(namespace: dict[str, Any], names: Mapping[str, str]) -> None:
    """Define the names of a module's annotations, without importing anything.

    Args:
        namespace: `globals()` of the module.
        names: for each module to import from, as in a `from` statement, its names; `a as b` renames.
    """
    package = namespace["__package__"]
    for module, listed in names.items():
        for each in listed.split(", "):
            name, _, alias = each.partition(" as ")
            namespace[alias or name] = _deferred(module, package, name)
