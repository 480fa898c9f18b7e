"""Secrets of another program: `op read op://Private/{name}/credential`, `gopass show -o {name}`.

No shell executes the command: it is split into words once, and the name, which contains only letters, digits, `_` and
`-`, is inserted into them. It runs as an actor below the root, with the process's environment and a deadline. It is not
executed again for a name with a known value; concurrent callers for a name wait for the same execution.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

from ....protocol.errors import ConfigError, ProcessError, TimedOut
from ....protocol.settings.vault import PLACE
from ..handed_out import hidden_tail

if TYPE_CHECKING:
    from ....supervisors import Actor, Ref, Root

MOST = 64 * 1024
"""Maximum bytes of a command's output."""

MOST_SAID = 300
"""Maximum characters of its stderr in an error."""


class NotGiven(ConfigError):
    """The command has no such secret, or failed."""

    code = "vault"


@final
class VaultCommand:
    """Vault command with its results.

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
                raise NotGiven(end.value or f"the vault's command was ended before it had printed {name}")
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
                output_limit=MOST,
                on_overflow="kill",
            )
        except TimedOut as error:
            raise NotGiven(f"{who} did not end within {self._timeout:g} s (`timeout` of `vault`)") from error
        except ProcessError as error:
            raise NotGiven(f"{who} can't be run: {error}") from error
        if done.truncated:
            raise NotGiven(f"{who} printed more than {MOST} bytes")
        if done.signal is not None or done.status:
            how = f"was ended by signal {done.signal}" if done.signal is not None else f"failed (status {done.status})"
            said = hidden_tail(" ".join(done.stderr_tail.split()), MOST_SAID)
            raise NotGiven(f"{who} {how}{f': {said}' if said else ''}")
        value = done.stdout.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
        if not value.strip() or "\0" in value:
            raise NotGiven(f"{who} printed {'a NUL character' if value.strip() else 'nothing'}")
        return value
