"""Patches: changes of requests to providers that Callboard has no setting for.

    clients:
      - type: openai
        models:
          - name: o4-mini
            patch: {body: {temperature: null}}          # of the model: always
        patch:
          chat_completions:                             # of the client: the first pattern that fits a model's name
            'gpt-4.*': {body: {frequency_penalty: 0.2}}
            '.*': {url: https://eu.example/v1/chat/completions, headers: {x-team: blue}}

A variable `CALLBOARD_PATCH_OPENAI_CHAT_COMPLETIONS` (or Loki's `LOKI_PATCH_...`) contains such a mapping of patterns
as JSON, and replaces the client's own. `actors/work/models/patching` applies them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Mapping as Dict
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from ..reading import Cursor, Reading
from ..tree import Entry, Mapping, dotted
from ..yaml_tree import parse_mapping

Json = Any

Api = Literal["chat_completions", "embeddings", "rerank"]
"""Kind of a request."""


class Patch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Patch of a request.

    Attributes:
        url: the whole URL of the request, in place of the default one.
        body: merged into its JSON, key by key; null removes a key.
        headers: headers to add or replace; null removes one.
    """

    url: str = ""
    body: dict[str, Json] = {}
    headers: dict[str, str | None] = {}


Patterns = dict[str, Patch]
"""Patches by patterns of model names; the first matching pattern is used."""


class ClientPatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Patches of a client, by the purpose of the request."""

    chat_completions: Patterns = {}
    embeddings: Patterns = {}
    rerank: Patterns = {}


# --- checks

LONGEST_PATTERN = 1_000

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
# Headers of one connection (RFC 9110, section 7.6.1) and of the body's length. httpx sets them; a wrong one breaks the
# request.
_FRAMING = frozenset({"connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"})


def check_client_patch(part: Cursor | None) -> None:
    """Report problems in the patches of a client that types cannot express."""
    given = [] if part is None else [found for api in ClientPatch.__struct_fields__ if (found := part.get(api))]
    for patterns in given:
        for pattern in patterns.entries:
            if why := _why_no_pattern(pattern):
                hint = "the pattern must match the whole name of a model: `gpt-4.*`, `a|b`."
                patterns.key(pattern).error(
                    "bad_pattern", f"`{pattern[:80]}` is not a regular expression: {why}", hint=hint
                )
            check_patch(patterns.get(pattern))


def check_patch(part: Cursor | None) -> None:
    """Report problems in one patch. Values with references to the environment are checked at use."""
    url = None if part is None else part.get("url")
    if url is not None and url.text is not None and "{" not in url.text and (why := why_no_url(url.text.strip())):
        url.error("bad_url", f"`{dotted(url.path)}` {why}", expected="the whole URL of a request, https://...")
    headers = None if part is None else part.get("headers")
    if headers is None:
        return
    for name in headers.entries:
        at = headers.key(name)
        if _TOKEN.fullmatch(name) is None:
            at.error("bad_header", f"`{name[:80]}` is not a name of a header", expected="letters, digits and dashes")
        elif name.lower() in _FRAMING:
            at.error("bad_header", f"`{name}` is set by the HTTP client and can't be patched", hint="remove it.")
        elif (text := headers[name].text) is not None and (why := why_no_header(text)):
            headers[name].error("bad_header", f"the value of `{name}` {why}", expected="one line of ASCII")


def why_no_url(url: str) -> str:
    """Return why the text is no URL for a request; empty if it is one."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        return f"is no URL: {error}"
    if not known or re.search(r"[\s\x00-\x1f\x7f\\]", url):
        return f"is '{url[:80]}', not a URL that begins with http:// or https://"
    if parts.username is not None or parts.password is not None:
        return "has a user name or a password; put it into a header"
    return "has a part after #, which is never sent" if parts.fragment else ""


def why_no_header(value: str) -> str:
    """Return why a header cannot have this value; empty if it can."""
    return "" if _VALUE.fullmatch(value) else "has a line break or a character that is not ASCII"


def _why_no_pattern(pattern: str) -> str:
    if len(pattern) > LONGEST_PATTERN:
        return f"it has more than {LONGEST_PATTERN} characters"
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    return ""


# --- patches of the environment

_VARIABLE = re.compile(r"(CALLBOARD|LOKI)_PATCH_(\w+?)_(CHAT_COMPLETIONS|EMBEDDINGS|RERANK)")


def variables(environ: Dict[str, str]) -> Iterator[tuple[str, str, Api]]:
    """Yield the variables with patches, with client and kind of each; Callboard's before Loki's."""
    # `CALLBOARD_` sorts before `LOKI_`, and the caller uses the first variable of a client.
    for name in sorted(environ):
        match = _VARIABLE.fullmatch(name)
        if match is not None and environ[name].strip():
            api: Any = match[3].lower()
            yield name, match[2], api


def client_in_variables(client: str) -> str:
    """Return a client's name in the spelling of variables."""
    return re.sub(r"[^A-Z0-9]", "_", client.upper())


def of_variable(name: str, text: str, reading: Reading) -> Patterns:
    """Return the patches in a variable; problems are added to `reading`."""
    # The JSON of a variable is also YAML, and this parser reports problems with their positions.
    root, problems = parse_mapping(text, reading.file)
    reading.problems += problems
    if root is None:
        return {}
    api = next(api for api in ClientPatch.__struct_fields__ if name.endswith(api.upper()))
    whole = Mapping({api: Entry(root, 0, 0)}, 0, 0)
    patch = reading.fill(ClientPatch, whole, what="patches")
    check_client_patch(Cursor(reading, whole))
    found: Patterns = getattr(patch, api)
    return found
