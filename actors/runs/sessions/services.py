"""The interface of what sessions use of their process. `runs.root.Root` implements it, so that the root makes
`live.Sessions` and sessions need not know the root.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ....protocol.settings import Settings
from ....supervisors import Root as Kernel
from ...work.models.gateway import Gateway


class Services(Protocol):
    """See the module.

    Attributes:
        config_dir: where sessions are kept.
        settings: how they are shortened and named.
        kernel: under which their actors live. gateway: to the models that summarise.
    """

    config_dir: Path
    settings: Settings
    kernel: Kernel
    gateway: Gateway
