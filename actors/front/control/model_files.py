"""Checks which files a server's callers may load as models: `local:/path/to/model.gguf`.

The server's operator may name any file, in `config.yaml`, in agents, on the command line. From outside, a path would
tell what lies on the machine, and hand any file to a loader that is no parser for strangers. So it needs the scope for
files and has to lie in a directory that the settings name, and the refusal is the same whether or not it is there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ....protocol.control.caller import Caller
from ....protocol.errors import Denied
from ...work.models import weights

if TYPE_CHECKING:
    from ...runs.root import Root


def check_model(caller: Caller, model: str | None, root: Root) -> None:
    """Raise `Denied` if this names a file that the caller may not have loaded."""
    file = root.gateway.file_of(model) if model and model != root.settings.model else None
    if file is None:
        return
    if not caller.has("run:files"):
        raise Denied("a model that is a file needs the scope 'run:files'; GET /v1/models has the others")
    path = Path(os.path.realpath(Path(file).expanduser()))
    allowed = [weights.directory(os.environ), *map(Path, root.settings.api.model_directories)]
    if not any(path.is_relative_to(os.path.realpath(directory)) for directory in allowed):
        raise Denied(
            "a model that is a file has to lie in the directory of pulled models, or in one of `api.model_directories` "
            "of the server's config.yaml"
        )
