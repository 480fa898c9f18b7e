"""Secret lookups other than the vault: only the environment, or checks without fetching."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar, final

if TYPE_CHECKING:
    from .vault import Vault

T = TypeVar("T")
UNKNOWN = "https://not-fetched.invalid"
"""Placeholder for a secret that a check does not fetch; valid as a key and as an address."""


class Lookup(Protocol):
    """Interface of the vault for readers of references; see `Vault`."""

    def get(self, name: str, /) -> str | None:
        """Return the value of a name; None if there is none."""
        ...

    def why_missing(self, name: str) -> str:
        """Return the explanation for a name without a value."""
        ...

    async def ready(self, make: Callable[[], T]) -> T:
        """Return the result of `make`, which calls `get`."""
        ...


@final
class OfEnvironment:
    """Lookup in the environment's variables, where there is no vault."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def get(self, name: str, /) -> str | None:
        return self._environ.get(name) or None

    def why_missing(self, name: str) -> str:
        return f"which is not set; set it: export {name}=..."

    async def ready(self, make: Callable[[], T]) -> T:
        return make()


@final
class ForChecks:
    """Lookup for checks: a value that takes time to fetch is assumed to exist, and replaced with a placeholder."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def get(self, name: str, /) -> str | None:
        if not self._vault.may_have(name):
            return None
        return self._vault.get(name) if self._vault.is_quick else UNKNOWN

    def why_missing(self, name: str) -> str:
        return self._vault.why_missing(name)

    async def ready(self, make: Callable[[], T]) -> T:
        return make()
