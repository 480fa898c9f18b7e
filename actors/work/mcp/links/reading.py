"""The messages in one response of HTTP's, which is JSON or a stream of events."""

from __future__ import annotations

import msgspec

from .....protocol.errors import McpError
from .....protocol.jsonrpc import Failure, Message, Notification, Request, Result
from ....io.http.sse import SseParser
from .link import Outgoing, Receiver
from .texts import described, refused
from .web import Web


class Reading:
    """Hands on the messages of a response until its answer is among them.

    Attributes:
        about: the request that it answers; None for a stream that answers none.
        events: how many there were.
    """

    def __init__(self, web: Web, receiver: Receiver, about: Outgoing | None) -> None:
        self.about = about
        self.what = "listening" if about is None else described(about)
        self.events = 0
        self.parser = SseParser(web.server.max_message_bytes)
        self._web = web
        self._receiver = receiver
        self._answer: Result | Failure | None = None

    @property
    def answered(self) -> bool:
        """Whether the answer has come."""
        return self._answer is not None

    def result(self) -> msgspec.Raw:
        """The answer.

        Raises:
            McpError: it is a refusal, or there is none.
        """
        if isinstance(self._answer, Result):
            return self._answer.result
        if self._answer is None:
            raise McpError(
                f"MCP server '{self._web.server.name}' answered {self.what} with messages that hold no answer to it"
            )
        assert self.about is not None, "only a request is answered"
        raise refused(self._web.server.name, self.about, self._answer.error)

    def begin_again(self) -> None:
        """The next bytes are of another response that goes on where this one broke."""
        old, self.parser = self.parser, SseParser(self._web.server.max_message_bytes)
        self.parser.last_id, self.parser.retry = old.last_id, old.retry

    def take(self, data: bytes) -> bool:
        """The next bytes of an event stream. Whether the answer was among them."""
        for event in self.parser.feed(data):
            self.events += 1
            if event.kind == "message" and event.data:
                self.take_messages(event.data.encode())
                if self.answered:
                    return True
        return False

    def take_messages(self, data: bytes) -> None:
        """A message, or several."""
        for message in self._web.messages(data, self.what):
            self._take(message)

    def _take(self, message: Message) -> None:
        if isinstance(message, Notification):
            self._receiver.on_notification(message, self.about)
        elif isinstance(message, Request):
            self._receiver.on_request(message, self.about)
        elif self.about is not None and self._answer is None and _answers(message, self.about):
            self._answer = message


def _answers(message: Result | Failure, request: Outgoing) -> bool:
    """Some servers refuse what they could not read under an id of their own; a response holds no other's answer."""
    return message.id == request.id or (isinstance(message, Failure) and not isinstance(message.id, int))
