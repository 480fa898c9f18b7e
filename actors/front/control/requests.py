"""Conversion of `StartRun` into a run request, with checks of targets, files and models against the caller's scopes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ....protocol.control.caller import Caller
from ....protocol.control.method_structs import StartRun
from ....protocol.decoding import convert
from ....protocol.errors import Denied, UsageError
from ....protocol.requests import Limits, RunRequest
from ...runs.finding import is_installed
from ...work.knowledge.registry import is_path
from ...work.models import weights
from ...work.roles import find

if TYPE_CHECKING:
    from ....protocol.role import Role
    from ...runs.root import Root


def request_of(caller: Caller, wanted: StartRun, config_dir: Path) -> RunRequest:
    """Return the run request for `wanted`. Blocking: reads the file system.

    Args:
        config_dir: configuration directory, in which agents are found by name.

    Raises:
        Denied: the caller lacks a scope for this target or option.
        UsageError: a limit is not a number of at least 0, or the caller lacks `run:files` and names an unknown agent.
    """
    caller.need("run:agents")
    if not caller.has("run:files"):
        _refuse_paths(wanted, config_dir)
    if (wanted.yes or wanted.allow) and not caller.has("answer:questions"):
        raise Denied("`yes` and `allow` need the scope 'answer:questions', because they answer for a user")
    if wanted.answers and not caller.has("answer:questions"):
        raise Denied("`answers` needs the scope 'answer:questions', because it answers for a user")
    limits = convert(wanted, Limits, from_attributes=True)
    return msgspec.structs.replace(convert(wanted, RunRequest, from_attributes=True), limits=limits)


def _refuse_paths(wanted: StartRun, config_dir: Path) -> None:
    """Raise unless the target is an installed agent; a file in the server's working directory must not match a name."""
    target = wanted.target
    if os.sep in target or "\0" in target or target in (".", "..") or target.endswith((".yaml", ".yml")):
        raise Denied("running a path as target needs the scope 'run:files'; use the name of an agent")
    if target and not is_installed(target, config_dir):
        raise UsageError(f"there is no agent {target[:60]!r}; list the agents with `_target/list` or GET /v1/agents")
    if wanted.files or wanted.attach:
        raise Denied("`files` and `attach` need the scope 'run:files', because the server reads them from its disk")
    if any(is_path(name) for name in wanted.knowledge):
        raise Denied("using a knowledge base by its path needs the scope 'run:files'; use its name")


def check_model(caller: Caller, model: str | None, root: Root) -> None:
    """Raise `Denied` if the model is a file (`local:/path/to/model.gguf`) that the caller may not load.

    The operator may name any file, in `config.yaml`, in agents, or on the command line. For a remote caller, a path
    would reveal which files exist. It would also pass any file to a loader that is not hardened against hostile input.
    So the caller needs the scope `run:files`, and the file must be below the directory of downloaded models or one of
    `api.model_directories`. The model of `config.yaml` is always allowed. The error is the same whether or not the
    file exists.
    """
    files = root.gateway.catalog.files_of(model) if model and model != root.settings.model else []
    if not files:
        return
    if not caller.has("run:files"):
        raise Denied("using a model file needs the scope 'run:files'; list the other models with GET /v1/models")
    paths = [Path(os.path.realpath(Path(file).expanduser())) for file in files]
    allowed = [weights.directory(os.environ), *map(Path, root.settings.api.model_directories)]
    if not all(any(path.is_relative_to(os.path.realpath(one)) for one in allowed) for path in paths):
        raise Denied(
            "a model file must be in the directory of downloaded models, or in one of "
            "`api.model_directories` of the server's config.yaml"
        )


def check_role(caller: Caller, name: str, root: Root, *, model: str | None = None) -> Role:
    """Return the role if the caller may use its model. Blocking: reads the role's file.

    Args:
        model: model that overrides the role's, which is then not checked; the caller checks this one.

    Raises:
        NotFound, InvalidFile, UsageError: there is no such role; its file has errors; its arguments do not fit.
        Denied: see `check_model`.
    """
    role = find(name, root.config_dir)
    if not model:
        check_model(caller, role.model, root)
    return role
