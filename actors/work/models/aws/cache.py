"""Prompt caching on Bedrock, which caches everything before a `cachePoint` block; a request may have four.

The positions are the same as for Anthropic (see `anthropic`): the end of the constant part, of the conversation, and of
the previous request. Models without caching refuse the request, so `auto` marks only requests to models that are known
to support it: Claude from 3.7 on, 3.5 Haiku, and Amazon's Nova except the speech models. `5m` and `1h` mark requests
to any model, since the name of an inference profile says nothing about it. Only Claude from 4.5 on supports an hour.
Nova accepts no cache point among the tools.
https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html
"""

from __future__ import annotations

import re
from typing import Any

from .....protocol import chat
from .....protocol.settings.model import Cache
from .. import codec
from ..reasoning import families

Json = Any

_NOVA = re.compile(r"amazon\.nova-(?:2-)?(?:micro|lite|pro|premier)")


def mark(body: dict[str, Json], cache: Cache, request: chat.ChatRequest, model: str) -> None:
    """Add cache points to the body of a request, if the settings and the model allow it."""
    nova = _NOVA.search(model) is not None
    claude = families.claude(model)
    known = nova or (claude is not None and (claude.version >= (3, 7) or "3-5-haiku" in model))
    if not codec.caches(cache, request) or (cache == "auto" and not known):
        return
    point: Json = {"type": "default"}
    if cache == "1h" and not nova and (claude is None or claude.version >= (4, 5)):
        point["ttl"] = "1h"
    block = {"cachePoint": point}
    if "system" in body:
        body["system"] = [*body["system"], block]
    elif "toolConfig" in body and not nova:
        body["toolConfig"] = {**body["toolConfig"], "tools": [*body["toolConfig"]["tools"], block]}
    for message in body["messages"][-1:-4:-2]:
        message["content"] = [*message["content"], block]
