"""OpenAI's own SDK (`.venv/interop/control`) against our server: `openai_sdk.py BASE_URL TOKEN`; prints what it got.

The models that it asks are `agent/clerk`, `graph/hello` and `agent/nobody`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import openai


def main(base: str, token: str) -> dict[str, Any]:
    """Everything that it got, by name."""
    client = openai.OpenAI(base_url=base, api_key=token, max_retries=0)
    messages: list[Any] = [{"role": "user", "content": "1+2?"}]
    got: dict[str, Any] = {"models": sorted(model.id for model in client.models.list())}
    whole = client.chat.completions.create(model="agent/clerk", messages=messages)
    assert whole.usage is not None
    got["whole"] = [whole.choices[0].message.content, whole.choices[0].finish_reason, whole.usage.total_tokens]
    pieces: list[str] = []
    usage = 0
    options: Any = {"include_usage": True}
    for chunk in client.chat.completions.create(
        model="agent/clerk", messages=messages, stream=True, stream_options=options
    ):
        if chunk.usage is not None:
            usage = chunk.usage.total_tokens
        pieces += [choice.delta.content for choice in chunk.choices if choice.delta.content]
    got["pieces"], got["streamed"], got["usage"] = len(pieces), "".join(pieces), usage
    graph = client.chat.completions.create(model="graph/hello", messages=messages)
    got["graph"] = graph.choices[0].message.content
    got["beside"] = (graph.model_extra or {}).get("callboard", {}).get("status")
    try:
        client.chat.completions.create(model="agent/nobody", messages=messages)
    except openai.NotFoundError as error:
        got["absent"] = error.code
    try:
        openai.OpenAI(base_url=base, api_key="nonsense", max_retries=0).models.list()
    except openai.AuthenticationError as error:
        got["stranger"] = error.status_code
    return got


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
