"""Where else than in the vault secrets are looked up: in the environment alone, or for checks that hand nothing out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar, final

if TYPE_CHECKING:
    from .vault import Vault

T = TypeVar("T")
UNKNOWN = "https://not-fetched.invalid"
"""What stands for a secret that a check does not fetch; good for a key and for an address."""


class Lookup(Protocol):
    """What a reader of references needs of the vault; see `Vault`."""

    def get(self, name: str, /) -> str | None:
        """What the name stands for."""
        ...

    def why_missing(self, name: str) -> str:
        """What is said of a name that stands for nothing."""
        ...

    async def ready(self, make: Callable[[], T]) -> T:
        """What `make` returns, which calls `get`."""
        ...


@final
class OfEnvironment:
    """The environment's variables, where there is no vault."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def get(self, name: str, /) -> str | None:
        """See `Lookup`."""
        return self._environ.get(name) or None

    def why_missing(self, name: str) -> str:
        """See `Lookup`."""
        return f"which is not set; export {name}=..."

    async def ready(self, make: Callable[[], T]) -> T:
        """See `Lookup`."""
        return make()


@final
class ForChecks:
    """The vault, for checks: a value that takes time to get is taken to be there, and a stand-in is given for it."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def get(self, name: str, /) -> str | None:
        """See `Lookup`."""
        if not self._vault.may_have(name):
            return None
        return self._vault.get(name) if self._vault.is_quick else UNKNOWN

    def why_missing(self, name: str) -> str:
        """See `Lookup`."""
        return self._vault.why_missing(name)

    async def ready(self, make: Callable[[], T]) -> T:
        """See `Lookup`."""
        return make()
