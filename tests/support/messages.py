"""Messages of the product by id, for tests that assert which message appears and which facts it names.

`says("runs.target.find_agent", name="writer")` is a regular expression for `pytest.raises(match=...)`;
`has_message(text, id, **facts)` searches a text for the message. `fragment(id, **facts)` is a stretch of the message as
it is printed, for helpers that wait for a text. All read tests/golden/messages.txt, so rewording a message changes no
test that uses them.

A fact is named after the last identifier of its placeholder: `name` for `{agent.name!r}`, `nodes` for `{len(nodes)}`.
The second placeholder of the same name is `name_2`, and one without an identifier is `value`. A placeholder without a
fact matches any text. `…` at either end of a fact matches any text: `path="…/config.yaml"`. A fact in a placeholder
with `!r` is given without quotes.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import Any

from support.message_source import read_golden

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_IDENTIFIER = re.compile(r"(?<!!)\b[A-Za-z_]\w*")
_STRING = re.compile(r"'[^']*'|\"[^\"]*\"")


def says(key: str, /, **facts: Any) -> str:
    """Return a regular expression for the message with id `key`.

    Raises:
        LookupError: no such message, or a fact that its placeholders do not have.
    """
    pattern = ""
    unused = set(facts)
    for literal, name in split_template(template(key)):
        if name is None:
            pattern += re.escape(literal)
        elif name in facts:
            unused.discard(name)
            pattern += _fact(facts[name])
        else:
            pattern += "(?s:.*)"
    if unused:
        names = [name for _, name in split_template(template(key)) if name]
        raise LookupError(f"{key} has no placeholder {', '.join(sorted(unused))}; it has {', '.join(names) or 'none'}")
    return pattern


def has_message(text: str, key: str, /, **facts: Any) -> bool:
    """Return True if `text` contains the message with id `key` and these facts."""
    return re.search(says(key, **facts), text) is not None


def fragment(key: str, /, **facts: Any) -> str:
    """Return the longest stretch of the message with id `key` that is known: literal text, and the given facts.

    A fact that begins or ends with `…` is the end or the beginning of what is printed in its place.

    Raises:
        LookupError: no such message, or no such facts beside each other.
    """
    stretches: list[tuple[set[str], str]] = [(set(), "")]
    for literal, name in split_template(template(key)):
        if name is None:
            stretches[-1] = (stretches[-1][0], stretches[-1][1] + literal)
        elif name not in facts:
            stretches.append((set(), ""))
        else:
            fact = str(facts[name])
            if fact.startswith("…"):
                stretches.append((set(), ""))
            stretches[-1] = (stretches[-1][0] | {name}, stretches[-1][1] + fact.strip("…"))
            if fact.endswith("…"):
                stretches.append((set(), ""))
    found = [text for names, text in stretches if names >= facts.keys()]
    if not found:
        raise LookupError(f"{key} has no placeholders {', '.join(facts)} with nothing but text between them")
    return max(found, key=len)


def template(key: str) -> str:
    """Return the template of a message."""
    try:
        return _golden()[key]
    except KeyError:
        raise LookupError(f"no message {key} in tests/golden/messages.txt; after a rename, run `make golden`") from None


def split_template(text: str) -> list[tuple[str, str | None]]:
    """Return the parts of a template: `(literal, None)` or `(placeholder, name of its fact)`."""
    parts: list[tuple[str, str | None]] = []
    count: Counter[str] = Counter()
    end = 0
    for found in _PLACEHOLDER.finditer(text):
        if found.start() > end:
            parts.append((text[end : found.start()], None))
        end = found.end()
        if found[1] is None:
            parts.append((found[0][0], None))
            continue
        names = _IDENTIFIER.findall(_STRING.sub("", found[1]))
        name = names[-1] if names else "value"
        count[name] += 1
        parts.append((found[0], name if count[name] == 1 else f"{name}_{count[name]}"))
    if end < len(text):
        parts.append((text[end:], None))
    return parts


@cache
def _golden() -> dict[str, str]:
    return read_golden()


def _fact(value: Any) -> str:
    text = str(value)
    before, after = text.startswith("…"), text.endswith("…")
    inner = re.escape(text.removeprefix("…").removesuffix("…"))
    exact = f"(?s:.*){inner}" if before else inner
    exact = f"{exact}(?s:.*)" if after else exact
    return f"(?:{exact}|['\"]{exact}['\"])"
