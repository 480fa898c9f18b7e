"""Base class of the messages that actors receive.

A message is a frozen msgspec struct with a tag. It is passed by reference inside the process and encoded only where it
leaves (a websocket, the journal, another machine), so its fields must be encodable.
"""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, tag=True):
    """Subclass this for your own messages: `class Ping(Message): n: int`.

    Frozen, so that sender and receiver may hold the same object; tagged with its class name, so that a union
    of messages decodes back to the right class.
    """


class Down(Message, frozen=True, kw_only=True, tag="Down"):
    """Notification to the monitors of an actor, sent once, when the actor has ended for good.

    Attributes:
        actor: path of the actor that ended.
        state: `done` or `failed`.
        error: text of the exception it failed with, or None.
    """

    actor: str
    state: str
    error: str | None = None
