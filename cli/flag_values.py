"""Parsed flag values: `--var`, `--set`, `--answer`, `--answers`, `--root`, `--json`.

Each function accepts the raw strings and returns the value for `callboard.run`, or raises a `UsageError` that says how
to write it. `request` builds the `RunRequest` from the flags of a command.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

from ..protocol.errors import UsageError

if TYPE_CHECKING:
    from ..protocol.requests import RunRequest

Answers = list[Any] | dict[str, Any]


def request(flags: dict[str, Any]) -> RunRequest:
    """Return the request of the flags of `run`, `ask`, `demo` or `batch`, and remove these flags from `flags`.

    Raises:
        UsageError: a flag has an invalid value.
    """
    from ..protocol.requests import Limits, RunRequest

    roots = flags.pop("roots", ())
    directories(roots)
    return RunRequest(
        target=flags.pop("target", ""),
        prompt=flags.pop("prompt", None) or "",
        model=flags.pop("model"),
        variables=variables(flags.pop("variables", ())),
        state=state(flags.pop("state", ())),
        answers=answers(flags.pop("answers", ()), flags.pop("answers_file", None)),
        compat=flags.pop("compat", None),
        limits=Limits(**{name: flags.pop(name, None) for name in Limits.__struct_fields__}),
        allow_unpriced=flags.pop("allow_unpriced", False),
        no_wait=flags.pop("no_wait", False),
        strict=flags.pop("strict", False),
        allow=tuple(flags.pop("allow", ())),
        yes=flags.pop("yes", False),
        roots=tuple(roots),
        knowledge=tuple(flags.pop("knowledge", ())),
        files=tuple(flags.pop("files", ())),
        rebuild_knowledge=flags.pop("rebuild_knowledge", False),
        attach=tuple(flags.pop("attach", ())),
        save=flags.pop("save", None),
        on_unknown=flags.pop("on_unknown", None),
        sandbox=flags.pop("sandbox", None),
    )


def variables(pairs: Iterable[str]) -> dict[str, str]:
    """Return `NAME=VALUE` strings as a dict; the last value of a name wins."""
    return dict(_split(pair, "--var", "NAME=VALUE") for pair in pairs)


def pairs(given: Iterable[str], flag: str, form: str) -> dict[str, str]:
    """Return strings such as `NAME=VALUE` as a dict; the last value of a name wins."""
    return dict(_split(pair, flag, form) for pair in given)


def state(pairs: Iterable[str]) -> dict[str, Any]:
    """Return `KEY=JSON` strings as a dict of JSON values."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, text = _split(pair, "--set", "KEY=JSON")
        found[key] = _json(key, text)
    return found


def answers(in_order: Iterable[str], file: str | None) -> Answers | None:
    """Return prepared answers: a list in the order of the questions, or a mapping by node id.

    In a file every scalar is text: `yes` answers "yes" and `1.0` answers "1.0", whatever YAML makes of them.

    Raises:
        UsageError: both flags were used, or the file contains neither a list nor a mapping.
    """
    listed = list(in_order)
    if file is None:
        return listed or None
    if listed:
        raise UsageError("--answer and --answers exclude each other: put all answers into the file")
    return _answers_file(Path(file))


def directories(paths: Iterable[str]) -> None:
    """Check the directories of `--root`.

    Raises:
        UsageError: a path does not exist, or is not a directory.
    """
    for path in paths:
        if not Path(path).is_dir():
            raise UsageError(f"--root {path}: there is no such directory")


def arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a tool call from the text of a JSON object.

    Raises:
        UsageError: it is not JSON, or not an object.
    """
    try:
        value: object = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(f'--json: not JSON ({error}); write an object: --json \'{{"path": "README.md"}}\'') from error
    if not isinstance(value, dict):
        raise UsageError(f"--json: expected a JSON object of arguments by name, not {type(value).__name__}")
    return value


def _answers_file(path: Path) -> Answers:
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"--answers {path}: can't be read: {reason}") from error
    try:
        loaded: object = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - BaseLoader makes only text, lists and mappings
    except yaml.YAMLError as error:
        raise UsageError(f"--answers {path}: not valid YAML: {error}") from error
    if isinstance(loaded, list):
        return [_answer(path, entry) for entry in loaded]
    if isinstance(loaded, dict):
        return {
            str(node): [_answer(path, each) for each in value] if isinstance(value, list) else _answer(path, value)
            for node, value in loaded.items()
        }
    found = "the file is empty" if loaded is None or loaded == "" else f"found {loaded!r}"
    raise UsageError(
        f"--answers {path}: expected a list of answers, or a mapping of node id to answer or list of answers; {found}"
    )


def _answer(path: Path, entry: object) -> Any:
    if isinstance(entry, str) or (isinstance(entry, list) and all(isinstance(each, str) for each in entry)):
        return entry
    raise UsageError(f"--answers {path}: an answer is text, or a list of texts for a checkbox; found {entry!r}")


def _split(pair: str, flag: str, form: str) -> tuple[str, str]:
    name, equals, value = pair.partition("=")
    if not equals or not name:
        raise UsageError(f"{flag} {pair}: expected {form}")
    return name, value


def _json(key: str, text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        hint = f"""; for text, quote it twice: --set '{key}="{text}"'""" if _looks_like_text(text) else ""
        raise UsageError(f"--set {key}={text}: the value is not JSON ({error}){hint}") from error


def _no_constant(name: str) -> Never:
    raise ValueError(f"{name} is not a JSON value")


def _looks_like_text(text: str) -> bool:
    return not text.lstrip().startswith(("{", "[", '"')) and "'" not in text and '"' not in text
