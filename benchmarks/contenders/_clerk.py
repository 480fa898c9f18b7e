"""The agent that all contenders of agents.py play: it looks one order up, then answers."""

from __future__ import annotations

INSTRUCTIONS = "You answer questions about orders. Look the order up before you answer."

TOOL = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Looks an order up.",
        "parameters": {
            "type": "object",
            "properties": {"order": {"type": "integer", "description": "its number."}},
            "required": ["order"],
        },
    },
}


async def lookup(order: int) -> str:
    """Looks an order up.

    Args:
        order: its number.
    """
    return f"Order {order} is on its way."


def question(number: int) -> str:
    """What agent `number` is asked."""
    return f"Customer {number} asks: where is order 7?"
