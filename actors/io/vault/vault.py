"""Vault of a process: the values of `{{NAME}}`, and when they are available.

Readers of references call `get`, which is synchronous. But a vault with a passphrase or a command takes seconds. So in
a trio task it raises `NotFetched` instead, and its caller awaits `fetch` and tries again (`ready` does both). In a
thread of trio's it waits for `fetch` itself, and without trio it runs a loop with a root of its own.

The file is read again after a change. Clients, servers and processes retain the values with which they were started.
trio is imported on demand, because completion of names does not need it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, final

from ....protocol.errors import ConfigError, ProcessError, TimedOut
from ....protocol.settings import Settings, VaultSettings
from ....protocol.settings.vault import LOKIS_KEY, PLACE
from ..directories import state_dir
from ..imports import imported
from ..secret_redaction import anything_handed_out, handed_out, hidden_tail, remover
from .file import VaultFile
from .keys import IdentityFile, Keyring, Opener, Passphrase

if TYPE_CHECKING:
    import trio

    from ....supervisors import Actor, Ref, Root

T = TypeVar("T")
AskPassphrase = Callable[[str], Awaitable[str]]
"""Asks the user for a passphrase without echo, given a text with its purpose."""

FILE = "vault.age"
LOKIS_FILE = "vault.yml"


class NotFetched(Exception):
    """The value of a secret is not available yet; `name` has to be fetched."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the value of the secret {{{{{name}}}}} has not been read from the vault yet")
        self.name = name


@final
class Vault:
    """Vault of a process.

    Args:
        settings: `vault` of `config.yaml`, and Loki's key for it.
        config_dir: default directory of the file.
        environ: values of names that are not in the vault's file.
        kernel: root for commands; None if no root is open.
        ask: asks for the passphrase; without it the user can't be asked.

    Attributes:
        file: None if a command stores the secrets.
        command: None if there is a file.
        told: True if a value was handed out.
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
        self.told: bool = False
        if anything_handed_out():  # by another root of this process
            self._hide()
        self._asking: trio.Lock | None = None
        self._kept: tuple[object, dict[str, str]] | None = None
        self._lokis_file = config_dir / LOKIS_FILE
        self.command: VaultCommand | None = VaultCommand(own.command, own.timeout, environ) if own.command else None
        self.file: VaultFile | None = None
        if self.command is None:
            lokis = str(settings.other.get(LOKIS_KEY) or "")
            path = _below(config_dir, own.file) if own.file else config_dir / FILE
            self.file = VaultFile(path, _opener(own, lokis, config_dir, environ))

    @property
    def is_there(self) -> bool:
        """True if the user has a vault: its file exists, or a command is configured."""
        return self.file is None or self.file.stamp is not None

    def get(self, name: str, /) -> str | None:
        """Return the secret's value, else the environment's variable of that name; None if there is neither.

        Raises:
            NotFetched: fetching takes time, and the caller is a trio task.
            ConfigError: the vault can't be decrypted, or its command has failed.
        """
        if self.command is not None:
            value = self.command.values.get(name)
            if value is None:
                value = self._wait_for(name)
        else:
            if self._fresh() is None and not self._opens_in_task():
                self._wait_for(name)
            value = self._secrets().get(name)
        if value is None and (value := self._environ.get(name)) is None:
            return None
        handed_out(value, name=name)
        self._hide()
        return value

    async def fetch(self, names: Iterable[str]) -> None:
        """Fetch values; a name that is missing in the vault's file is not an error.

        Raises:
            ConfigError: the vault can't be decrypted, or its command does not know a name or has failed.
            RuntimeError: a command stores the secrets, and the vault was opened without a root.
        """
        for name in names:
            if self.command is not None:
                if self._kernel is None:
                    raise RuntimeError("the vault's command can't be run: the vault was opened without a root")
                await self.command.fetch(name, self._kernel)
            elif self._fresh() is None:
                await self._open()

    @property
    def is_quick(self) -> bool:
        """True if `get` answers at once, without a command and a passphrase."""
        return self.command is None and (self._fresh() is not None or self._opens_in_task())

    def hide_all(self, names: Iterable[str] = ()) -> None:
        """Redact all secrets of the file from now on, if it can be decrypted at once. Blocks.

        For content from another process, which may contain secrets that were handed out there.

        Args:
            names: names handed out there: each may also be a variable of the environment.
        """
        found = [(name, self._environ.get(name, "")) for name in names]
        if self.file is not None and self.is_quick:
            with contextlib.suppress(ConfigError):  # reported when a secret is used
                found += self._secrets().items()
        for name, value in found:
            handed_out(value, name=name)
        if anything_handed_out():
            self._hide()

    def may_have(self, name: str) -> bool:
        """Return True if the name may have a value, as far as that is known without a command and a passphrase."""
        if not self.is_quick:
            return True
        return bool(self._secrets().get(name) or self._environ.get(name))

    async def ready(self, make: Callable[[], T]) -> T:
        """Return the result of `make`, which reads secrets; fetch them on demand."""
        while True:
            try:
                return make()
            except NotFetched as wanted:
                name = wanted.name
            await self.fetch((name,))

    def why_missing(self, name: str) -> str:
        """Return the explanation for a `{{NAME}}` without a value, with a remedy."""
        remedy = f"callboard vault add {name}"
        if not self.is_there and self._lokis_file.exists():
            remedy += (
                f" ({self._lokis_file} is Loki's own vault, which Callboard can't read: see callboard vault "
                "import --help)"
            )
        where = "the environment" if not self.is_there else "the vault or the environment"
        return f"which is not in {where}; add it: {remedy}"

    # --- internal -----------------------------------------------------------------------------------------

    def _hide(self) -> None:
        """Install redaction in the event bus."""
        self.told = True
        if self._kernel is not None:
            self._kernel.bus.rewrite = remover()

    def _fresh(self) -> dict[str, str] | None:
        """Return the cached content of the file, if it is current."""
        kept = self._kept
        assert self.file is not None
        return kept[1] if kept is not None and kept[0] == self.file.stamp else None

    def _opens_in_task(self) -> bool:
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
        except RuntimeError:  # not a thread of trio's
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
        """Read the file in a thread; the passphrase is asked for once, however many callers wait."""
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
                opener.set_passphrase(await self._ask(f"Passphrase of the vault {self.file.path}"))
            try:
                await trio.to_thread.run_sync(self._secrets)
            except ConfigError:
                if asked:
                    assert isinstance(opener, Passphrase)
                    opener.set_passphrase(None)  # the next caller may type it correctly
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


# --- secrets of another program: `op read op://Private/{name}/credential`, `gopass show -o {name}`
#
# No shell executes the command: it is split into words once, and the name, which contains only letters, digits, `_` and
# `-`, is inserted into them. It runs as an actor below the root, with the process's environment and a deadline. It is
# not executed again for a name with a known value; concurrent callers for a name wait for the same execution.


MOST_OUTPUT = 64 * 1024
"""Maximum bytes of a command's output."""

MOST_STDERR = 300
"""Maximum characters of its stderr in an error."""


class NotGiven(ConfigError):
    """The vault's command does not know the secret, or failed."""

    code = "vault"


@final
class VaultCommand:
    """External command that prints secrets of the vault, with the values that it has returned so far.

    Args:
        words: `vault.command` of the settings.
        timeout: timeout in seconds.
        environ: environment of the command.

    Attributes:
        values: results so far, by name.
    """

    def __init__(self, words: str, timeout: float, environ: Mapping[str, str]) -> None:
        self._words = shlex.split(words)
        self._timeout = timeout
        self._environ = environ
        self._running: dict[str, Ref[Any, str]] = {}
        self.values: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"VaultCommand({self._words!r})"

    async def fetch(self, name: str, root: Root) -> str:
        """Return the value, executing the command if necessary; the execution continues if its caller is cancelled.

        Raises:
            NotGiven: it failed, took too long, or printed nothing or too much.
        """
        while (value := self.values.get(name)) is None:
            run = self._running.get(name)
            if run is None:
                run = self._running[name] = root.spawn(self._run, name, name=f"vault-{name}", link=False)
            end = await run.wait()
            if end.error is not None:
                raise end.error
            if name not in self.values:
                raise NotGiven(end.value or f"the vault's command was stopped before it had printed {name}")
        return value

    async def _run(self, me: Actor, name: str) -> str:
        """Store the value in `values`, or return the reason of the failure."""
        try:
            self.values[name] = await self._printed(me, name)
        except NotGiven as error:
            return str(error)
        finally:
            self._running.pop(name, None)
        return ""

    async def _printed(self, me: Actor, name: str) -> str:
        from ....supervisors import run_process

        argv = [word.replace(PLACE, name) for word in self._words]
        who = f"the vault's command for {{{{{name}}}}}, `{shlex.join(argv)}`,"
        try:
            done = await run_process(
                me,
                argv,
                name="command",
                env=dict(self._environ),
                timeout=self._timeout,
                output_limit=MOST_OUTPUT,
                on_overflow="kill",
            )
        except TimedOut as error:
            raise NotGiven(f"{who} did not end within {self._timeout:g} s (`timeout` of `vault`)") from error
        except ProcessError as error:
            raise NotGiven(f"{who} can't be run: {error}") from error
        if done.truncated:
            raise NotGiven(f"{who} printed more than {MOST_OUTPUT} bytes")
        if done.signal is not None or done.status:
            how = f"was killed by signal {done.signal}" if done.signal is not None else f"failed (status {done.status})"
            said = hidden_tail(" ".join(done.stderr_tail.split()), MOST_STDERR)
            raise NotGiven(f"{who} {how}{f': {said}' if said else ''}")
        value = done.stdout.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
        if not value.strip() or "\0" in value:
            raise NotGiven(f"{who} printed {'a NUL character' if value.strip() else 'nothing'}")
        return value
