"""Test call: one small request exactly as later ones, before anything is written."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from ...actors.io import temporary
from ...actors.io.vault.lookups import ForChecks
from ...actors.runs.model_checks import Checked, ask, check
from ...actors.work.models.catalog import ModelCatalog
from ...protocol.environment import names_of
from ..frame import act
from ..render.progress import choose
from ..render.text import redrawable

if TYPE_CHECKING:
    from ...actors.runs.root import Root
    from ...supervisors import Actor


def tried(model: str, config: str, home: Path, file: Path, key: Mapping[str, str]) -> Checked:
    """Send one request to a model with a `config.yaml` that is not written yet, and return the check's result.

    Args:
        model: `client:model`.
        config: text of the file.
        home: configuration directory, whose vault is used.
        file: future path of the text, for messages.
        key: variable with the typed key, for this request alone.
    """
    progress = choose(sys.stderr, quiet=not redrawable(sys.stderr), verbose=False)

    async def request(me: Actor, root: Root) -> Checked:
        found = check(
            model, root.settings, ModelCatalog(root.settings, os.environ, vault=ForChecks(root.vault)), os.environ
        )
        return await ask(me, found, root.gateway, root.knowledge, trio.CapacityLimiter(1))

    with temporary.directory("setup-") as folder:
        draft = folder / "config.yaml"
        draft.write_text(config, encoding="utf-8")
        with _environment({names_of("config_file")[0]: str(draft), **key}):
            found = act(request, config_dir=str(home), progress=progress)
        if found.failed is None:
            return found
        message = found.failed.message.replace(str(draft), str(file))
        return msgspec.structs.replace(found, failed=msgspec.structs.replace(found.failed, message=message))


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
