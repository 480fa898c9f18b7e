"""Directories, environment and secrets of one tenant, in place of the process's own.

A tenant is isolated because it has its own instance of everything. It is a root (`root.Root` with a `Config`): its
own supervision tree, questions, events, models, MCP servers, sessions and caches. It shares the event loop with other
tenants, and no object. Three things belong to the process and not to a root; a `TenantHome` has them for its tenant:

- the environment, which names directories and is inherited by scripts (`io.tenancy`)
- the secrets that are redacted from all output (`io.secret_redaction`)
- the file system, as sandboxed processes see it: they do not see the directories of other open tenants, nor the
  private files of Callboard and its user in the home directory

    <directory>/                 agents, roles, sessions, rags: a configuration directory without `config.yaml`
                work/            `Config.cwd`, unless it is set
                home/            HOME of tools and scripts
                .state/, .cache/, .data/   journals, results, caches
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextvars import Token
from pathlib import Path
from typing import final

from ...protocol.errors import UsageError
from ..io.directories import config_dir as configured
from ..io.directories import private_directory
from ..io.secret_redaction import SecretTexts, known
from ..io.temporary import LazyDirectory, run_bases
from ..io.tenancy import Tenancy, tenancy
from ..work.sandbox.policy import is_below, real
from ..work.sandbox.protected_paths import secret_files
from .config import Config

INHERITED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "TZ", "TMPDIR")
"""Environment variables of the process that tools of a tenant inherit."""


@final
class TenantHome:
    """Directories and environment of an open tenant. The constructor creates the directories.

    Args:
        config: configuration of the tenant.
        neighbours: homes of all open tenants of a root; this one is added.
        config_dir: configuration directory of the process, hidden from the tenant's processes.

    Attributes:
        name: name of the tenant.
        directory, cwd, environ: see the module.

    Raises:
        UsageError: `cwd` is no directory, or another tenant has one of the directories.
    """

    def __init__(self, config: Config, neighbours: set[TenantHome], config_dir: Path | None = None) -> None:
        self._neighbours = neighbours
        self._config_dir = configured(None, os.environ)[0] if config_dir is None else config_dir
        self.name = config.name
        self._temporary: LazyDirectory | None = None
        self._roots = tuple(os.path.realpath(root) for root in config.roots)
        if config.directory is None:
            self._temporary = LazyDirectory(f"tenant-{secrets.token_hex(6)}", run_bases)
            self.directory = Path(os.path.realpath(self._temporary.path()))
        else:
            # Real paths: by a link, two tenants could share a directory unseen.
            self.directory = Path(os.path.realpath(Path(config.directory).expanduser()))
        self.cwd = self.directory / "work"
        if config.cwd is not None:
            self.cwd = Path(os.path.realpath(Path(config.cwd).expanduser()))
            if not self.cwd.is_dir():
                raise UsageError(f"there is no directory {self.cwd} for runs to work in (`Config.cwd`)")
        self._check_neighbours()
        home = self.directory / "home"
        try:
            for directory in (home, self.cwd):
                private_directory(directory)
        except OSError as error:
            why = error.strerror or error
            raise UsageError(f"{self.directory} can't be used (`Config.directory`): {why}") from error
        # Built from nothing: keys of the process must not reach a tenant's scripts.
        self.environ: Mapping[str, str] = {
            **{name: value for name in INHERITED if (value := os.environ.get(name))},
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "XDG_STATE_HOME": str(self.directory / ".state"),
            "XDG_CACHE_HOME": str(self.directory / ".cache"),
            "XDG_DATA_HOME": str(self.directory / ".data"),
            **config.environ,
        }
        self._known = SecretTexts()
        self._tenancy = Tenancy(self.environ, self._hidden)
        neighbours.add(self)

    def enter(self) -> tuple[Token[Tenancy | None], Token[SecretTexts | None]]:
        """Make the running task work for the tenant; `root.leave` undoes it."""
        return tenancy.set(self._tenancy), known.set(self._known)

    def close(self) -> None:
        """Remove the tenant's directory if it is temporary. Blocks."""
        self._neighbours.discard(self)
        if self._temporary is not None:
            self._temporary.remove()

    @property
    def places(self) -> tuple[str, ...]:
        """The directories that belong to the tenant."""
        return (str(self.directory), str(self.cwd), *self._roots)

    def _check_neighbours(self) -> None:
        for other in self._neighbours:
            if other.name == self.name:  # The same tenant with other settings may use its directories.
                continue
            for mine in (str(self.directory), str(self.cwd)):
                for theirs in (str(other.directory), str(other.cwd)):
                    # Either way: the tools of the outer tenant could read the files of the inner one.
                    if is_below(mine, theirs) or is_below(theirs, mine):
                        raise UsageError(
                            f"tenant '{self.name}' would work in {mine}, and tenant '{other.name}' has {theirs}: give "
                            "each tenant a directory of its own (`Config.directory`, `Config.cwd`)"
                        )

    def _hidden(self) -> tuple[str, ...]:
        own = self.places
        # Computed at each start of a process, because tenants open and close meanwhile.
        others = {place for each in self._neighbours if each is not self for place in each.places}
        ours = secret_files(Path(os.environ.get("HOME") or Path.home()), self._config_dir, os.environ)
        found = real(sorted((*others, str(self._config_dir), *ours)))
        return tuple(path for path in found if not any(is_below(path, place) for place in own))
