"""The vault as a process has it: what `{{NAME}}` stands for, and when that is known.

`get` is what the readers of references call. It is no coroutine, and a vault that a passphrase opens, or a command,
takes seconds: so where that is awaited, in a task of trio, it raises `NotFetched`, and its caller awaits `fetch` and
tries again (`ready` does both). In a thread of trio's it waits for `fetch` itself, and without trio it has a root of
its own for that long.

The file is read again when it has changed. A value that a client, a server or a process was started with stays theirs.
trio is imported where it is needed, since names are completed without it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, final

from ....protocol.errors import ConfigError
from ....protocol.settings import Settings, VaultSettings
from ....protocol.settings.vault import LOKIS_KEY
from ..directories import state_dir
from ..handed_out import anything_handed_out, handed_out, without_secrets
from ..imports import imported
from .command import Command
from .file import VaultFile
from .openers import IdentityFile, Keyring, Opener, Passphrase

if TYPE_CHECKING:
    import trio

    from ....supervisors import Root

T = TypeVar("T")
AskPassphrase = Callable[[str], Awaitable[str]]
"""Asks a person, with a text that says what for, and shows nothing of what is typed."""

FILE = "vault.age"
LOKIS_FILE = "vault.yml"


class NotFetched(Exception):
    """The value of a secret is not known yet; `name` is to be fetched."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the secret {{{{{name}}}}} has not been fetched")
        self.name = name


@final
class Vault:
    """See the module.

    Args:
        settings: `vault` of `config.yaml`, and Loki's key for it.
        config_dir: where the file is, unless they say otherwise.
        environ: what `{{NAME}}` stands for that is not in the vault's file.
        kernel: commands run below it; None where no root is open.
        ask: for the passphrase; without it no person can be asked.

    Attributes:
        file: None where a command has the secrets.
        command: None where there is a file.
        told: whether anything was handed out.
    """

    def __init__(
        self,
        settings: Settings,
        config_dir: Path,
        environ: Mapping[str, str],
        kernel: Root | None = None,
        *,
        ask: AskPassphrase | None = None,
    ) -> None:
        own = settings.vault
        self._environ = environ
        self._kernel = kernel
        self._ask = ask
        self._reading = threading.Lock()
        self.told = False
        if anything_handed_out():  # by another root of this process
            self._hide()
        self._asking: trio.Lock | None = None
        self._kept: tuple[object, dict[str, str]] | None = None
        self._lokis_file = config_dir / LOKIS_FILE
        self.command = Command(own.command, own.timeout, environ) if own.command else None
        self.file: VaultFile | None = None
        if self.command is None:
            lokis = str(settings.other.get(LOKIS_KEY) or "")
            path = _below(config_dir, own.file) if own.file else config_dir / FILE
            self.file = VaultFile(path, _opener(own, lokis, config_dir, environ))

    @property
    def is_there(self) -> bool:
        """Whether there is a vault at all."""
        return self.file is None or self.file.stamp is not None

    def get(self, name: str, /) -> str | None:
        """The secret's value, else the environment's variable of that name; None if there is neither.

        Raises:
            NotFetched: it takes time to know it, and this is a task of trio.
            ConfigError: the vault can't be opened, or its command has failed.
        """
        if self.command is not None:
            value = self.command.values.get(name)
            if value is None:
                value = self._wait_for(name)
        else:
            if self._fresh() is None and not self._opens_here():
                self._wait_for(name)
            value = self._secrets().get(name)
        if value is None and (value := self._environ.get(name)) is None:
            return None
        handed_out(value, name=name)
        self._hide()
        return value

    async def fetch(self, names: Iterable[str]) -> None:
        """Have these known; what is not in the vault's file is none of its errors. Raises like `get`."""
        for name in names:
            if self.command is not None:
                if self._kernel is None:
                    raise RuntimeError("this vault has no root to run its command below")
                await self.command.fetch(name, self._kernel)
            elif self._fresh() is None:
                await self._open()

    @property
    def is_quick(self) -> bool:
        """Whether `get` answers at once, without a command and a passphrase."""
        return self.command is None and (self._fresh() is not None or self._opens_here())

    def hide_all(self, names: Iterable[str] = ()) -> None:
        """Have all that its file holds taken out of what this process tells, if it opens at once. Blocks.

        For contents of files that another process has seen, to which some of it was handed out.

        Args:
            names: what was handed out there: each may be a variable of the environment as well.
        """
        found = [(name, self._environ.get(name, "")) for name in names]
        if self.file is not None and self.is_quick:
            with contextlib.suppress(ConfigError):  # which is told when a secret is wanted
                found += self._secrets().items()
        for name, value in found:
            handed_out(value, name=name)
        if anything_handed_out():
            self._hide()

    def may_have(self, name: str) -> bool:
        """Whether the name stands for something, as far as that can be told without a command and a passphrase."""
        if not self.is_quick:
            return True
        return bool(self._secrets().get(name) or self._environ.get(name))

    async def ready(self, make: Callable[[], T]) -> T:
        """What `make` returns, which reads secrets."""
        while True:
            try:
                return make()
            except NotFetched as wanted:
                name = wanted.name
            await self.fetch((name,))

    def why_missing(self, name: str) -> str:
        """What is said of a `{{NAME}}` that stands for nothing, with what to do."""
        remedy = f"callboard vault add {name}"
        if not self.is_there and self._lokis_file.exists():
            remedy += (
                f" ({self._lokis_file} is Loki's own vault, which can't be read: see callboard vault import --help)"
            )
        where = "the environment" if not self.is_there else "the vault or the environment"
        return f"which is not in {where}: {remedy}"

    # --- inside -------------------------------------------------------------------------------------------

    def _hide(self) -> None:
        """From now on what was handed out is taken out of all events."""
        self.told = True
        if self._kernel is not None:
            self._kernel.bus.rewrite = without_secrets

    def _fresh(self) -> dict[str, str] | None:
        """What is in the file, if it is known as it is now."""
        kept = self._kept
        assert self.file is not None
        return kept[1] if kept is not None and kept[0] == self.file.stamp else None

    def _opens_here(self) -> bool:
        assert self.file is not None
        return self.file.opener.quick or self.file.stamp is None

    def _secrets(self) -> dict[str, str]:
        found = self._fresh()
        if found is None:
            assert self.file is not None
            with self._reading:
                stamp = self.file.stamp
                found = self.file.read() if stamp is not None else {}
                self._kept = stamp, found
        return found

    def _wait_for(self, name: str) -> str | None:
        import trio

        if trio.lowlevel.in_trio_task():
            raise NotFetched(name)
        try:
            trio.from_thread.run(self.fetch, (name,))
        except RuntimeError:  # no thread of trio's
            trio.run(self._fetch_alone, name)
        return None if self.command is None else self.command.values.get(name)

    async def _fetch_alone(self, name: str) -> None:
        from ....supervisors import Root

        before = self._kernel
        async with Root() as self._kernel:
            try:
                await self.fetch((name,))
            finally:
                self._kernel = before

    async def _open(self) -> None:
        """Have the file read, in a thread; the passphrase is asked for once, however many want it."""
        import trio

        assert self.file is not None
        if self._asking is None:
            self._asking = trio.Lock()
        async with self._asking:
            if self._fresh() is not None:
                return
            await imported("pyrage")
            opener = self.file.opener
            asked = isinstance(opener, Passphrase) and opener.is_wanted and self.file.stamp is not None
            if asked and self._ask is not None:
                assert isinstance(opener, Passphrase)
                opener.tell(await self._ask(f"Passphrase of the vault {self.file.path}"))
            try:
                await trio.to_thread.run_sync(self._secrets)
            except ConfigError:
                if asked:
                    assert isinstance(opener, Passphrase)
                    opener.tell(None)  # the next who wants it may type it better
                raise


def _opener(own: VaultSettings, lokis: str, config_dir: Path, environ: Mapping[str, str]) -> Opener:
    if own.keyring:
        return Keyring(state_dir(environ) / "vault" / "keyring", own.recipients)
    if own.passphrase_file or (lokis and not own.identity and not own.passphrase):
        return Passphrase(_below(config_dir, own.passphrase_file or lokis))
    if own.passphrase:
        return Passphrase()
    path = _below(config_dir, own.identity) if own.identity else state_dir(environ) / "vault" / "identity.txt"
    return IdentityFile(path, own.recipients)


def _below(directory: Path, path: str) -> Path:
    return directory / os.path.expanduser(path)  # noqa: PTH111 - a home that is not known stays `~`, and raises nothing
