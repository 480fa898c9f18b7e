"""Tests without a network: pytest examples/python/test_an_agent.py"""

import callboard
from callboard.testing import Calls, ScriptedModel, call


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


bot = callboard.Agent(name="bot", instructions="Use your tool.", tools=[add])


def test_the_agent_uses_its_tool() -> None:
    calls = Calls()
    # region: peers 2
    model = ScriptedModel([call("add", a=1, b=2), "It is 3."])
    outcome = callboard.run_sync(bot, "What is 1 + 2?", model=model, on_event=calls)
    # endregion
    assert outcome.final == "It is 3."
    assert calls.assert_called("add", a=1, b=2).result == "3"
