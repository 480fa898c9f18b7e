"""What Bedrock keeps of a prompt: everything before a `cachePoint` block, of which a request may have four.

They stand where Anthropic's own marks do (see `anthropic`): at the end of what never changes, at that of the
conversation, and where it ended in the request before. Models that know no such block refuse the request, so `auto`
marks only for those that are known to take it: Claude from 3.7 on and 3.5 Haiku, and Amazon's Nova but for speech. `5m`
and `1h` do so for any model, since an inference profile may be called anything. An hour is for Claude from 4.5 on; Nova
takes no mark among the tools.
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
    """Put cache points into a request, if it is worth it."""
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
