"""Runner for one function of a Python tool file. A script that imports only the standard library.

The file is loaded as a module under its own name, with its directory first on the path. Arguments are converted to the
types of the function's annotations: dataclasses, TypedDicts, named tuples, enums, tuples and sets are built from their
JSON. The return value is written to LLM_OUTPUT: a text unchanged, None as nothing, anything else as JSON.

A function that was written for another program than Loki has a host. The host is a script that is loaded first: it
makes that program's modules importable, adds further arguments, and converts the result.

The process has no terminal. `input`, `getpass` and reads from `sys.stdin` ask the user over the socket in
CALLBOARD_ASK_FD. The script runs on the Python of the file's first line, so it is written for Python 3.8.
"""

from __future__ import annotations

import builtins
import collections.abc
import dataclasses
import enum
import importlib.util
import inspect
import io
import json
import os
import sys
import typing

# The old forms of types: this file is also run by the interpreters of users' tools, back to Python 3.8.
Json = typing.Dict[str, typing.Any]  # noqa: UP006
Parts = typing.Tuple[typing.Any, ...]  # noqa: UP006

ASK = int(os.environ["CALLBOARD_ASK_FD"])


def main() -> None:
    """Read the call, execute it, and write its result."""
    with open(int(os.environ.pop("CALLBOARD_CALL_FD")), "rb") as file:  # noqa: PTH123 - a descriptor
        call = json.loads(file.read())
    if _word() != "go":
        raise SystemExit(2)
    _take_over_stdin()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace", line_buffering=True)  # type: ignore[union-attr] # text
    # Leaves no __pycache__ in the user's directory.
    sys.dont_write_bytecode = True
    path = call["file"]
    sys.argv = [path]
    try:
        host = _host(call.get("host"), path)
        function = getattr(_load(path, named=host is None), call["function"], None)
        if not callable(function):
            sys.exit(f"{path} has no function '{call['function']}'")
        result = _call(function, call["arguments"], {} if host is None else host.arguments(function))
        if host is not None:
            result = host.result(result)
    except SystemExit:
        raise  # The exit status, and the text if there is one, belong to the call.
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the tool's
        _explain(error, path)
        sys.exit(1)
    if result is not None:
        text = result if isinstance(result, str) else json.dumps(result, default=_plain, ensure_ascii=False)
        with open(os.environ["LLM_OUTPUT"], "ab") as output:  # noqa: PTH123 - as above
            output.write(text.encode("utf-8", "replace"))


def _host(wanted: typing.Optional[Json], path: str) -> typing.Any:  # noqa: UP045
    """Return the host of the call; None if it has none, and then put the file's directory first on the path."""
    if wanted is None:
        sys.path[0] = os.path.dirname(path)  # noqa: PTH120 - pathlib would double the time to start
        return None
    del sys.path[0]
    return typing.cast("typing.Any", _load(wanted["script"], named=False)).enter(wanted["given"], ask)


def _load(path: str, *, named: bool) -> object:
    """Load the module in a file, under the file's own name if that is possible."""
    name = os.path.splitext(os.path.basename(path))[0]  # noqa: PTH119, PTH122 - as above
    if not named or name in sys.modules or not name.isidentifier():
        name = "_tool_" + "".join(letter if letter.isalnum() else "_" for letter in name)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Dataclasses look up their own module in `sys.modules`.
    spec.loader.exec_module(module)
    return module


def _call(function: typing.Any, given: Json, added: Json) -> object:
    hints = _hints(function)
    arguments = dict(added)
    for name, parameter in inspect.signature(function).parameters.items():
        if name in added or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name in given:
            arguments[name] = build(hints.get(name, typing.Any), given[name])
        elif parameter.default is parameter.empty:
            arguments[name] = None
    result = function(**arguments)
    if inspect.isawaitable(result):
        import asyncio  # Imported only when needed: the import takes longer than the start of Python.

        result = asyncio.run(_finished(result))
    return result


async def _finished(result: typing.Any) -> object:
    return await result


def _explain(error: BaseException, path: str) -> None:
    """Print the traceback from the tool's own first line on, without the frames of this runner."""
    import traceback

    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


# --- from JSON to the types of the annotations ------------------------------------------------------------


def build(hint: typing.Any, value: typing.Any) -> typing.Any:
    """Convert `value` to an instance of `hint`; return it unchanged for a hint that needs or allows no conversion.

    Raises whatever the type raises for a value that does not fit, such as `ValueError` for an enum.
    """
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is not None:
        return _build_generic(origin, parts, value)
    if not isinstance(hint, type):
        return value
    if issubclass(hint, enum.Enum):
        return _member(hint, value)
    if isinstance(value, dict):
        if dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"):
            return hint(**_built_fields(hint, value))
        if hasattr(hint, "__total__"):
            return _built_fields(hint, value)
        if hasattr(hint, "model_validate"):
            return hint.model_validate(value)
    if hint is float and type(value) is int:
        return float(value)
    if hint in (set, frozenset, tuple) and isinstance(value, list):
        return hint(value)
    return value


def _build_generic(origin: typing.Any, parts: Parts, value: typing.Any) -> typing.Any:
    if getattr(origin, "__name__", "") in ("Annotated", "Required", "NotRequired", "ReadOnly"):
        return build(parts[0], value)
    if origin is typing.Union or type(origin).__name__ == "UnionType" or getattr(origin, "__name__", "") == "UnionType":
        return _build_union(parts, value)
    if not isinstance(origin, type):
        return value
    if isinstance(value, dict) and issubclass(origin, collections.abc.Mapping):
        return {key: build(parts[1], item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    if origin is tuple:
        if len(parts) == 2 and parts[1] is Ellipsis:
            return tuple(build(parts[0], item) for item in value)
        return tuple(build(parts[at], item) if at < len(parts) else item for at, item in enumerate(value))
    if issubclass(origin, collections.abc.Iterable):
        items = [build(parts[0], item) for item in value]
        return origin(items) if origin in (set, frozenset) else items
    return value


def _build_union(parts: Parts, value: typing.Any) -> typing.Any:
    """Return the value if it already fits an alternative, else convert it to the first one possible."""
    if value is None or type(value) in parts:
        return value
    for part in parts:
        try:
            made = build(part, value)
        except (TypeError, ValueError, KeyError):
            continue
        if made is not value:
            return made
    return value


def _built_fields(hint: typing.Any, value: Json) -> Json:
    hints = _hints(hint)
    return {name: build(hints.get(name, typing.Any), item) for name, item in value.items()}


def _member(hint: typing.Any, value: typing.Any) -> typing.Any:
    try:
        return hint(value)
    except ValueError:
        if isinstance(value, str) and value in hint.__members__:
            return hint[value]
        raise


def _hints(owner: typing.Any) -> Json:
    try:
        return typing.get_type_hints(owner)
    except Exception:  # noqa: BLE001 - one of them is a name that only type checkers know
        return dict(_known_hints(owner))


def _known_hints(owner: typing.Any) -> typing.Iterator[typing.Tuple[str, typing.Any]]:  # noqa: UP006
    for one in reversed(getattr(owner, "__mro__", (owner,))):
        names = vars(sys.modules.get(one.__module__, builtins))
        for name, hint in vars(one).get("__annotations__", getattr(one, "__annotations__", {})).items():
            try:
                # The annotation is code of the tool's own file, which runs in this process anyway.
                yield name, eval(hint, dict(names)) if isinstance(hint, str) else hint  # noqa: S307 - see above
            except Exception:  # noqa: BLE001, S112 - that one stays what JSON says
                continue


def _plain(value: typing.Any) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if hasattr(value, "model_dump"):
        return value.model_dump()
    return str(value)


# --- questions ---------------------------------------------------------------------------------------------


class Unanswered(EOFError):
    """The question got no answer."""


def ask(**fields: str) -> str:
    """Ask the user and return the answer. Blocks. See `runner_protocol` for the fields.

    Raises:
        Unanswered: there is no answer; the text has the reason.
    """
    words = [f"{name}={value}".replace("\0", "") for name, value in fields.items()]
    data = "".join(word + "\0" for word in [str(len(words)), *words]).encode("utf-8", "replace")
    try:
        while data:
            data = data[os.write(ASK, data) :]
        status = _word()
        values = [_word() for _ in range(int(_word()))]
    except (OSError, ValueError) as error:
        raise Unanswered("the question could not be asked: the connection to Callboard is closed") from error
    if status != "ok":
        raise Unanswered(values[0])
    return values[0]


def _word() -> str:
    word = bytearray()
    # One byte per read: a child process may use the same socket, so nothing may be read ahead.
    while (letter := os.read(ASK, 1)) != b"\0":
        if not letter:
            raise OSError("closed")
        word += letter
    return word.decode("utf-8", "replace")


class Stdin(io.TextIOBase):
    """Replacement for `sys.stdin`. Each line is a question; reading everything yields one answer."""

    _over = False

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 0

    def readline(self, size: typing.Optional[int] = -1, /) -> str:  # type: ignore[override]  # noqa: UP045, ARG002
        try:
            return ask(kind="text") + "\n"
        except Unanswered as error:
            sys.stderr.write(f"{error}\n")
            return ""

    def read(self, size: typing.Optional[int] = -1, /) -> str:  # noqa: UP045, ARG002
        if self._over:
            return ""
        self._over = True
        return self.readline()

    @property
    def buffer(self) -> io.BytesIO:
        """The answer as a binary stream."""
        return io.BytesIO(self.read().encode())

    def __next__(self) -> str:  # type: ignore[override] # TextIO says bytes or text
        line = self.read()
        if not line:
            raise StopIteration
        return line


def _take_over_stdin() -> None:
    import getpass

    def ask_text(prompt: object = "", /) -> str:
        return ask(kind="text", text=str(prompt))

    def ask_secret(prompt: str = "Password: ", stream: object = None) -> str:  # noqa: ARG001 - its own signature
        return ask(kind="text", text=prompt, secret="1")  # noqa: S106 - not a password

    builtins.input = ask_text
    getpass.getpass = ask_secret
    sys.stdin = Stdin()


if __name__ == "__main__":
    main()
