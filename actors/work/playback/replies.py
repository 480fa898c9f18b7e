"""Delivery of a recorded model reply: its events, its usage, and the limits of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ....protocol.chat import ChatReply, ChatRequest, ReasoningDelta, TextDelta
from ....protocol.errors import CallboardError
from ....protocol.events import LlmDelta, LlmFailed, LlmReasoning, LlmRequest, LlmResponse, split_text
from ..models.codec import check_reply
from ..spending.accounts import Amount
from .playback import Asking

if TYPE_CHECKING:
    from ....supervisors import Actor


class RecordedReply:
    """A model request that is answered from a record.

    Args:
        id: of its events.
        model: the requested model.
    """

    def __init__(self, me: Actor, id: str, model: str, request: ChatRequest, asking: Asking) -> None:
        self._me = me
        self._id = id
        self._model = model
        self._request = request
        self._asking = asking
        self._began = 0.0

    def asked(self) -> None:
        """Emit the event of the request."""
        request, self._began = self._request, trio.current_time()
        self._me.emit(
            LlmRequest(
                model=self._model,
                messages=len(request.messages) + bool(request.system),
                tools=[tool.name for tool in request.tools],
                stream=self._asking.hears is not None,
            ),
            id=self._id,
        )

    def emit_text(self, text: str, reasoning: str = "") -> None:
        """Emit the reply's text and reasoning, each as one delta to the reader."""
        hears = self._asking.hears
        # The caller did not ask for a stream, so no deltas are emitted.
        if hears is None:
            return
        if reasoning:
            for piece in split_text(reasoning):
                self._me.emit(LlmReasoning(text=piece), id=self._id)
            hears(ReasoningDelta(reasoning))
        if text:
            for piece in split_text(text):
                self._me.emit(LlmDelta(text=piece), id=self._id)
            hears(TextDelta(text))

    def answered(self, reply: ChatReply, seconds: float | None = None) -> ChatReply:
        """Emit the events of a reply, count and charge it, and return it.

        Raises:
            ModelError: the reply is invalid, see `check_reply`.
        """
        me, usage = self._me, reply.usage
        self.emit_text(reply.text, reply.reasoning)
        me.emit(
            LlmResponse(
                model=reply.model,
                seconds=trio.current_time() - self._began if seconds is None else seconds,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                stop=reply.stop,
                cached_tokens=usage.cached_tokens,
                cache_write_tokens=usage.cache_write_tokens,
                reasoning_tokens=usage.reasoning_tokens,
            ),
            id=self._id,
        )
        me.emit(self._asking.count(reply.model, usage, reply.cost), id=self._id)
        if self._asking.account is not None:
            # A replay must reach the same limits as the recorded run.
            self._asking.account.charge(Amount(usage.input_tokens + usage.output_tokens, reply.cost or 0.0), 1)
        # After the events and the charge, in the order of a real request: an invalid reply was paid for as well.
        check_reply(reply)
        return reply

    def failed(self, error: CallboardError) -> CallboardError:
        """Emit the event of a failed request and return the error."""
        self._me.emit(LlmFailed(model=self._model, error=str(error), code=error.code), id=self._id)
        return error
