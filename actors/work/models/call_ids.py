"""Tool call ids of a history, rewritten to the rules of the provider.

A conversation may change its model. Its calls have the ids of the provider that produced them, or ids of callboard if a
provider has none. Other providers refuse a whole request because of such an id. Anthropic and Bedrock accept only
letters, digits, `_` and `-`, and each id once in a request. OpenAI accepts at most 40 characters. Mistral, and servers
with its tokenizer, require exactly nine letters and digits.

The stored history is not changed. Each request maps the ids one to one by a hash. So the same history produces the same
request again, and the provider's prompt cache remains valid.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from ....protocol.chat import AssistantTurn, ToolTurn, Turn

MOST = 40
"""Maximum length of an id that every provider accepts, except Mistral."""

_FITS = re.compile(rf"(?:[A-Za-z0-9_-]{{1,{MOST}}}\n)*")
_FITS_MISTRAL = re.compile(r"(?:[A-Za-z0-9]{9}\n)*")
_MISTRAL = re.compile(r"mi[sx]tral|ministral|pixtral|codestral|devstral|magistral", re.IGNORECASE)


def of_mistral(model: str, base: str = "") -> bool:
    """Return True for a model with Mistral's tokenizer, at any server."""
    return _MISTRAL.search(model) is not None or "mistral.ai" in base


def fitting(turns: Sequence[Turn], *, mistral: bool = False) -> Sequence[Turn]:
    """Return the turns with valid, unique ids; the same object if they are valid already.

    Results are matched to calls by their order: several calls with the same id in a turn take the results in turn.
    """
    ids = [call.id for turn in turns if type(turn) is AssistantTurn for call in turn.tool_calls]
    if not ids:
        return turns
    pattern = _FITS_MISTRAL if mistral else _FITS
    if len(set(ids)) == len(ids) and pattern.fullmatch("\n".join(ids) + "\n"):
        return turns
    taken: set[str] = set()
    waiting: dict[str, deque[str]] = {}
    found: list[Turn] = []
    for turn in turns:
        if isinstance(turn, AssistantTurn) and turn.tool_calls:
            waiting = {}
            calls = []
            for call in turn.tool_calls:
                new = _new(call.id, pattern, taken, mistral)
                taken.add(new)
                waiting.setdefault(call.id, deque()).append(new)
                calls.append(call if new == call.id else msgspec.structs.replace(call, id=new))
            found.append(msgspec.structs.replace(turn, tool_calls=tuple(calls)))
        elif isinstance(turn, ToolTurn) and (queue := waiting.get(turn.call)):
            new = queue.popleft() if len(queue) > 1 else queue[0]  # further results belong to the last call
            found.append(msgspec.structs.replace(turn, call=new))
        else:
            found.append(turn)
    return found


def _new(id: str, pattern: re.Pattern[str], taken: set[str], mistral: bool) -> str:
    """Return a valid id that is not taken: `id` itself if possible."""
    if id and id not in taken and pattern.fullmatch(id + "\n"):
        return id
    number = 0
    while True:
        digest = blake2b(f"{number}:{id}".encode(errors="surrogatepass"), digest_size=16).hexdigest()
        new = digest[:9] if mistral else f"call_{digest[:24]}"
        if new not in taken:
            return new
        number += 1
