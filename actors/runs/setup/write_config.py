"""Text of a config.yaml that selects a model: a new file with comments, or an edit of an existing one.

An existing file retains its text: comments, order, blank lines. Therefore the text is not generated from the parsed
settings. Lines are inserted or replaced, and the result is parsed again before it is shown. If that is not possible
(`clients` in one line), the edit is refused with the lines that the user can insert by hand.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from ....protocol.errors import Conflict, NotKept
from ....protocol.problems import errors_in
from ....protocol.settings import Settings, read_settings
from ...io.atomic_write import write_whole
from ...io.directories import private_directory
from .detect import UsableProvider

_PLAIN = re.compile(r"[A-Za-z][\w./:@+-]*[\w/]")
# Words that YAML 1.1, unlike 1.2, reads as booleans are quoted, too, for other programs that read the file.
_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "null"))
_ITEM = re.compile(r"( *)- ")
_MODEL = re.compile(r"model[ \t]*:(?P<value>[ \t]+[^#\n]*?)?(?P<rest>[ \t]*(?:#[^\n]*)?)")


def new_config(offer: UsableProvider, model: str, api_key: str = "") -> str:
    """Return the text of a new config.yaml that selects one model.

    Args:
        model: one of the offer's models, or another one.
        api_key: `{{NAME}}` in place of a key; "" for a key in the environment, or none.
    """
    lines = [
        "# Written by `callboard setup`, which can be called again. `callboard schema settings` has all keys.",
        "",
        "# Default model. `callboard models list` shows others; `-m CLIENT:MODEL` selects one for a single run.",
        f"model: {scalar(f'{offer.client.name}:{model}')}",
    ]
    entry = client_lines(offer, api_key)
    if entry:
        lines += ["", "clients:", *(f"  {line}" for line in entry)]
    else:
        lines += ["", f"# {_where_its_key_is(offer, api_key)}"] if offer.key else []
    return "\n".join(lines) + "\n"


def client_lines(offer: UsableProvider, api_key: str = "") -> list[str]:
    """Return the lines of the entry in `clients`; none if the provider needs no entry."""
    client = offer.client
    if not offer.needs_entry and not api_key:
        return []
    lines = [f"- type: {client.type}"]
    if client.name != client.type:
        lines.append(f"  name: {scalar(client.name)}")
    if client.api_base:
        lines.append(f"  api_base: {scalar(client.api_base)}")
    if api_key:
        lines += [f"  # {_where_its_key_is(offer, api_key)}", f"  api_key: {scalar(api_key)}"]
    return lines


def with_model(text: str, offer: UsableProvider, model: str, api_key: str = "", *, file: str = "config.yaml") -> str:
    """Return the text of an existing file with this client, unless it has one of that name, and with this default
    model.

    Raises:
        Conflict: that needs further changes; the message has the lines to write by hand.
    """
    before, _ = read_settings(text, file, {})
    entry = [] if any(each.name == offer.client.name for each in before.clients) else client_lines(offer, api_key)
    wanted = f"{offer.client.name}:{model}"
    changed = _with_default(_with_client(text, entry), wanted)
    after, problems = read_settings(changed, file, {})
    if errors_in(problems) or after.model != wanted or not _has_all(before, after, offer, added=bool(entry)):
        by_hand = "\n".join([f"model: {scalar(wanted)}", *(["clients:"] if entry else []), *entry])
        raise Conflict(f"{file} can't be edited automatically; add this by hand:\n{by_hand}")
    return changed


def write_config(file: Path, text: str) -> None:
    """Replace the file. A new file is readable only by its owner; an existing one retains its mode and its line ends.

    Raises:
        NotKept: the disk refuses the write.
    """
    try:
        private_directory(file.parent)
        target = file.resolve()  # write through a link instead of replacing it
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
        write_whole(target, _ended_as(target, text), private=True)
        target.chmod(mode)
    except OSError as error:
        raise NotKept(f"{file} can't be written: {error.strerror or error}") from error


def add_to_env_file(file: Path, name: str, value: str) -> None:
    """Add a variable to a `.env` file, which only its owner can read from then on.

    Raises:
        NotKept: the disk refuses the write.
    """
    try:
        text = file.read_text("utf-8") if file.exists() else ""
        text += "\n" if text and not text.endswith("\n") else ""
        private_directory(file.parent)
        target = file.resolve()
        write_whole(target, _ended_as(target, f"{text}{name}={quoted(value)}\n"), private=True)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise NotKept(f"{file} can't be written: {reason}") from error


def _ended_as(file: Path, text: str) -> bytes:
    """Return the text with CRLF line ends if all lines of the file have them."""
    before = file.read_bytes() if file.exists() else b""
    windows = 0 < before.count(b"\n") == before.count(b"\r\n")
    return (text.replace("\n", "\r\n") if windows else text).encode()


def quoted(value: str) -> str:
    """Return a value in the syntax of a `.env` file."""
    if re.fullmatch(r"[\w./:@+=-]+", value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def scalar(text: str) -> str:
    """Return a text as a YAML scalar."""
    # A JSON string is a valid YAML scalar.
    return text if _PLAIN.fullmatch(text) and text.casefold() not in _WORDS else json.dumps(text, ensure_ascii=False)


def _where_its_key_is(offer: UsableProvider, api_key: str) -> str:
    if api_key:
        return f"The key is in the vault: `callboard vault update {api_key.strip('{}')}` changes it."
    return f"The key is read from the environment variable {offer.key}."


def _has_all(before: Settings, after: Settings, offer: UsableProvider, *, added: bool) -> bool:
    names = [each.name for each in before.clients] + ([offer.client.name] if added else [])
    return sorted(names) == sorted(each.name for each in after.clients)


def _with_default(text: str, model: str) -> str:
    lines = text.split("\n")
    for at, line in enumerate(lines):
        found = _MODEL.fullmatch(line)
        if found is not None:
            lines[at] = f"model: {scalar(model)}{found['rest']}"
            return "\n".join(lines)
    # Comments, directives (`%`) and `---` stay at the top.
    first = next((at for at, line in enumerate(lines) if line and not line.startswith(("#", "%", "---"))), len(lines))
    if first == len(lines):
        return f"{text.rstrip()}\n\nmodel: {scalar(model)}\n".lstrip("\n")
    return "\n".join([*lines[:first], f"model: {scalar(model)}", *lines[first:]])


def _with_client(text: str, entry: list[str]) -> str:
    if not entry:
        return text
    lines = text.rstrip("\n").split("\n")
    head = next((at for at, line in enumerate(lines) if re.fullmatch(r"clients[ \t]*:[ \t]*(#.*)?", line)), None)
    if head is None:
        return "\n".join([text.rstrip("\n"), "", "clients:", *(f"  {line}" for line in entry), ""]).lstrip("\n")
    indent, end = "  ", head + 1
    for at in range(head + 1, len(lines)):
        line = lines[at]
        item = _ITEM.match(line)
        if line.strip() and not line.startswith((" ", "#", "- ")):
            break
        if item is not None and end == head + 1:
            indent = item[1]
        if line.strip() and not line.startswith("#"):
            end = at + 1
    put = [f"{indent}{line}" for line in entry]
    return "\n".join([*lines[:end], *put, *lines[end:], ""])
