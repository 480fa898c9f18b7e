"""Turns a caller's `StartRun` into the request of its run."""

from __future__ import annotations

import os
from pathlib import Path

from ....protocol.control.caller import Caller
from ....protocol.control.own import StartRun
from ....protocol.errors import Denied, UsageError
from ....protocol.requests import Limits, RunRequest
from ...runs.finding import is_installed
from ...work.knowledge.shelf import is_path


def request_of(caller: Caller, wanted: StartRun, config_dir: Path) -> RunRequest:
    """The request. Looks for files.

    Args:
        config_dir: where agents have names.

    Raises:
        Denied: the caller may not start this, or not like this.
        UsageError: a limit that nothing could keep.
    """
    caller.need("run:agents")
    if not caller.has("run:files"):
        _refuse_paths(wanted, config_dir)
    if (wanted.yes or wanted.allow) and not caller.has("answer:questions"):
        raise Denied("`yes` and `allow` need the scope 'answer:questions': they answer for a person")
    return RunRequest(
        target=wanted.target,
        prompt=wanted.prompt,
        model=wanted.model,
        variables=wanted.variables,
        state=wanted.state,
        answers=wanted.answers,
        compat=wanted.compat,
        limits=Limits(
            timeout=wanted.timeout,
            max_turns=wanted.max_turns,
            max_tokens=wanted.max_tokens,
            max_cost=wanted.max_cost,
        ),
        yes=wanted.yes,
        allow=tuple(wanted.allow),
        files=tuple(wanted.files),
        knowledge=tuple(wanted.knowledge),
        attach=tuple(wanted.attach),
    )


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
