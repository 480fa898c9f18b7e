"""A test with a scripted model, without a network: `python -m pytest test_an_agent.py` in this directory."""

from tools import clerk

import callboard
from callboard.testing import Calls, ScriptedModel, call


def test_the_clerk_asks_for_the_weather() -> None:
    calls, model = Calls(), ScriptedModel([call("weather", city="Oslo"), "It rains."])
    outcome = callboard.run_sync(clerk, "Does it rain in Oslo?", model=model, on_event=calls)
    assert outcome.unwrap() == "It rains."
    calls.assert_called("weather", city="Oslo", times=1)
