"""Golden files of the public surface; `make golden` rewrites them.

    help.txt        `--help` of every command
    api.txt         public names of `callboard`, with signatures, and error classes with code and exit code
    structs.txt     tagged structs: journal rows, messages, events' parts, lines of cassettes
    events.txt      event kinds with their fields
    openapi.json    the HTTP API
    schemas/        what `callboard schema NAME` prints

test_surface.py compares them with the code.
"""

from __future__ import annotations

import inspect
import json
import pkgutil
import re
import shutil
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import msgspec

import callboard
from callboard.actors.front.http.routes import openapi_document
from callboard.cli.commands.files import schema
from callboard.cli.main import cli
from callboard.protocol import errors
from callboard.protocol.events import KINDS

HERE = Path(__file__).parent
_APART = ("tests", "benchmarks", "examples", "library", "workers", "runners", "templates", "__main__", "build")


def help_texts() -> str:
    """Return the `--help` texts of all commands at 80 columns."""
    return "\n".join(f"$ {context.command_path} --help\n{text}\n" for context, text in _helps(cli, None))


def _helps(command: click.Command, parent: click.Context | None) -> Iterator[tuple[click.Context, str]]:
    name = "callboard" if parent is None else command.name
    settings = {**command.context_settings, "terminal_width": 80, "max_content_width": 80}
    context = click.Context(command, parent=parent, info_name=name, **settings)
    yield context, command.get_help(context)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None and not found.hidden:
                yield from _helps(found, context)


def api() -> str:
    """Return the public names of `callboard` and `callboard.testing`, and the error classes."""
    lines: list[str] = []
    for module in (callboard, import_module("callboard.testing")):
        defined = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        for name in sorted(each for each in getattr(module, "__all__", defined) if not each.startswith("_")):
            lines += _described(f"{module.__name__}.{name}", getattr(module, name))
    for name, value in sorted(vars(errors).items()):
        if isinstance(value, type) and issubclass(value, errors.CallboardError):
            lines.append(f"error {name}({value.__base__.__name__}) code={value.code} exit_code={value.exit_code}")
    return "\n".join(lines) + "\n"


def _described(name: str, value: Any) -> Iterator[str]:
    if not callable(value):
        yield name
        return
    kind = "class" if isinstance(value, type) else "async def" if inspect.iscoroutinefunction(value) else "def"
    yield f"{kind} {name}{_signature(value)}"
    if isinstance(value, type):
        for base in value.__mro__:
            if base.__module__.startswith("callboard."):
                for each, member in sorted(vars(base).items()):
                    if not each.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                        what = _signature(member) if inspect.isfunction(member) else ": property"
                        yield f"  {name}.{each}{what}"


def _signature(value: Any) -> str:
    if isinstance(value, type) and issubclass(value, msgspec.Struct):
        return f"({', '.join(name + ('=...' if optional else '') for name, optional in _fields(value))})"
    if not isinstance(value, type) and not inspect.isroutine(value):
        return "(...)"  # a type alias: Python 3.13 has a signature for it
    try:
        signature = inspect.signature(value)
    except ValueError:
        return "(...)"
    return re.sub(r" at 0x[0-9a-f]+", "", str(signature)).replace("'", "")


def structs() -> str:
    """Return one line for each tagged struct: the tag and the names of the encoded fields, optional ones with `?`."""
    for module in pkgutil.walk_packages(callboard.__path__, "callboard."):
        if not set(_APART) & set(module.name.split(".")):
            import_module(module.name)
    lines = set[str]()
    for struct in _subclasses(msgspec.Struct):
        config = struct.__struct_config__
        if config.tag is None or not struct.__module__.startswith("callboard."):
            continue
        fields = [name + ("?" if optional else "") for name, optional in _fields(struct)]
        home = struct.__module__.removeprefix("callboard.").split(".")[0]
        form = " array" if config.array_like else ""
        lines.add(f"{home} {config.tag_field}={config.tag}{form}: {' '.join(fields)}")
    return "\n".join(sorted(lines)) + "\n"


def _fields(struct: type[msgspec.Struct]) -> list[tuple[str, bool]]:
    """Return the encoded names of the fields, and whether each may be left out; types are not resolved."""
    names, defaults = struct.__struct_encode_fields__, struct.__struct_defaults__
    required = [msgspec.NODEFAULT] * (len(names) - len(defaults))
    return [(name, value is not msgspec.NODEFAULT) for name, value in zip(names, (*required, *defaults), strict=True)]


def _subclasses(struct: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for each in struct.__subclasses__():
        yield each
        yield from _subclasses(each)


def events() -> str:
    """Return the kinds of events, and under each its fields with their types."""
    lines: list[str] = []
    for kind, data in sorted(KINDS.items()):
        lines.append(kind)
        for name, optional in _fields(data):
            lines.append(
                f"    {name}: {data.__annotations__.get(name, 'inherited')}{' (optional)' if optional else ''}"
            )
    return "\n".join(lines) + "\n"


def _printed(value: Any) -> str:
    return json.dumps(_folded(value), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def _folded(value: Any) -> Any:
    """Fold the white space of descriptions: docstrings, which Python 3.13 stores without their indentation."""
    if isinstance(value, dict):
        words = {"description", "summary"}
        return {
            key: " ".join(each.split()) if key in words and isinstance(each, str) else _folded(each)
            for key, each in value.items()
        }
    return [_folded(each) for each in value] if isinstance(value, list) else value


def _schema(name: str) -> str:
    module, function = inspect.unwrap(schema.callback).__globals__["_ABOUT"][name]
    return _printed(getattr(import_module(module, "callboard"), function)())


def files() -> dict[str, Callable[[], str]]:
    """Return the golden files and what makes each of them."""
    choice = schema.params[0].type
    assert isinstance(choice, click.Choice)
    return {
        "help.txt": help_texts,
        "api.txt": api,
        "structs.txt": structs,
        "events.txt": events,
        "openapi.json": lambda: _printed(openapi_document()),
        **{f"schemas/{name}.json": lambda name=name: _schema(name) for name in choice.choices},
    }


if __name__ == "__main__":
    shutil.rmtree(HERE / "schemas", ignore_errors=True)
    (HERE / "schemas").mkdir()
    for file, make in files().items():
        (HERE / file).write_text(make(), encoding="utf-8")
