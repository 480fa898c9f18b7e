"""What callers may start: their `StartRun` as the request of its run, and which files they may name as models."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ....protocol.control.caller import Caller
from ....protocol.control.own import StartRun
from ....protocol.decoding import convert
from ....protocol.errors import Denied, UsageError
from ....protocol.requests import Limits, RunRequest
from ...runs.finding import is_installed
from ...work.knowledge.registry import is_path
from ...work.models import weights
from ...work.roles.files import find

if TYPE_CHECKING:
    from ....protocol.role import Role
    from ...runs.root import Root


def request_of(caller: Caller, wanted: StartRun, config_dir: Path) -> RunRequest:
    """The request. Looks for files.

    Args:
        config_dir: where agents have names.

    Raises:
        Denied: the caller may not start this, or not like this.
        UsageError: a limit that is no number of at least 0.
    """
    caller.need("run:agents")
    if not caller.has("run:files"):
        _refuse_paths(wanted, config_dir)
    if (wanted.yes or wanted.allow) and not caller.has("answer:questions"):
        raise Denied("`yes` and `allow` need the scope 'answer:questions': they answer for a person")
    limits = convert(wanted, Limits, from_attributes=True)
    return msgspec.structs.replace(convert(wanted, RunRequest, from_attributes=True), limits=limits)


def _refuse_paths(wanted: StartRun, config_dir: Path) -> None:
    """A name means what is installed, and nothing that happens to lie in the directory in which we were started."""
    target = wanted.target
    if os.sep in target or "\0" in target or target in (".", "..") or target.endswith((".yaml", ".yml")):
        raise Denied("a target that is a path needs the scope 'run:files'; give the name of an agent")
    if target and not is_installed(target, config_dir):
        raise UsageError(f"there is no agent {target[:60]!r}; `_target/list` and GET /v1/agents have those there are")
    if wanted.files or wanted.attach:
        raise Denied("`files` and `attach` need the scope 'run:files': they are read on this machine")
    if any(is_path(name) for name in wanted.knowledge):
        raise Denied("a knowledge base that is a path needs the scope 'run:files'; give its name")


def check_model(caller: Caller, model: str | None, root: Root) -> None:
    """Raise `Denied` if this names a file (`local:/path/to/model.gguf`) that the caller may not have loaded.

    The server's operator may name any file, in `config.yaml`, in agents, on the command line. From outside, a path
    would tell what lies on the machine, and hand any file to a loader that is no parser for strangers. So it needs the
    scope for files and has to lie in a directory that the settings name, and the refusal is the same whether or not it
    is there.
    """
    files = root.gateway.catalog.files_of(model) if model and model != root.settings.model else []
    if not files:
        return
    if not caller.has("run:files"):
        raise Denied("a model that is a file needs the scope 'run:files'; GET /v1/models has the others")
    paths = [Path(os.path.realpath(Path(file).expanduser())) for file in files]
    allowed = [weights.directory(os.environ), *map(Path, root.settings.api.model_directories)]
    if not all(any(path.is_relative_to(os.path.realpath(one)) for one in allowed) for path in paths):
        raise Denied(
            "a model that is a file has to lie in the directory of pulled models, or in one of `api.model_directories` "
            "of the server's config.yaml"
        )


def check_role(caller: Caller, name: str, root: Root, *, model: str | None = None) -> Role:
    """The role, for who may have it and its model. Reads its file.

    Args:
        model: what goes before the role's.

    Raises:
        NotFound, InvalidFile, UsageError: there is no such role; its file has errors; its arguments don't fit.
        Denied: see `check_model`.
    """
    role = find(name, root.config_dir)
    if not model:
        check_model(caller, role.model, root)
    return role
