"""What a run's directory is, as far as labels go by it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from ..sandbox.current import current


class Setting:
    """What a run's directory is, as far as labels go by it. Looked at when it is first needed.

    Args:
        here: the run's directory.
        environ: where the user's home and records are.

    Attributes:
        here: as given.
    """

    def __init__(self, here: Path, environ: Mapping[str, str]) -> None:
        self.here = here
        self._environ = environ

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """The directories that are its workspace, without links: not those that it may work in besides."""
        from ..trust.place import root_of

        workspace = root_of(self.here, self._environ)
        return tuple(os.path.realpath(each) for each in (workspace or self.here, self.here))

    @cached_property
    def is_trusted(self) -> bool:
        """Whether what stands in its files may be taken for what the user would say."""
        from ..trust.trusted import workspace_of

        trusted = workspace_of(self.here, self._environ)
        return trusted is None or trusted.is_trusted

    def has_network(self, tool: str) -> bool:
        """Whether the processes of a tool of this name reach a network."""
        sandbox = current.get()
        return sandbox is None or sandbox.has_network(tool)
