"""The base of everything an actor can be told.

A message is a frozen msgspec struct with a tag. Inside the process it is passed by reference; it is encoded
only where it leaves (a websocket, the journal, another machine). What can't be encoded can't be a message.
"""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, tag=True):
    """Subclass this for your own messages: `class Ping(Message): n: int`.

    Frozen, so that sender and receiver may hold the same object; tagged with its class name, so that a union
    of messages decodes back to the right class.
    """


class Down(Message, frozen=True, kw_only=True):
    """Sent to an actor's monitors, once, when it has ended for good.

    Attributes:
        actor: path of the actor that ended.
        state: `done` or `failed`.
        error: text of what it failed with, or None.
    """

    actor: str
    state: str
    error: str | None = None
