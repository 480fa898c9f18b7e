"""Typed results, tools with dependencies, and a graph of functions and agents, played by models of the script itself.

    python examples/typed_agents.py

Without `model=` the same agents ask the model of your configuration.
"""

from dataclasses import dataclass
from typing import Any

import trio

import callboard
from callboard.testing import Calls, FunctionModel, ScriptedModel, call


@dataclass
class Order:
    number: int
    state: str


@dataclass
class Shop:
    orders: dict[int, str]


async def look_up(ctx: callboard.Context[Shop], number: int) -> str:
    """Look an order up.

    Args:
        number: of the order.
    """
    return ctx.deps.orders[number]


CLERK = callboard.Agent(name="clerk", instructions="Answer questions about orders.", tools=[look_up], result=Order)
CRITIC = callboard.Agent(name="critic", instructions="Judge in one word.")

GRAPH = callboard.Graph("review", state={"rounds": 0})


@GRAPH.node("plan", next="judge")
def plan(state: dict[str, Any]) -> dict[str, Any]:
    """Say what is judged."""
    return {"topics": ["speed", "price"], "rounds": state["rounds"] + 1}


def enough(state: dict[str, Any]) -> bool:
    """Return whether another round is not needed."""
    return state["rounds"] >= 2


GRAPH.map("judge", CRITIC, over="topics", item="topic", prompt="The {{topic}} of {{initial_prompt}}?", into="verdicts")
GRAPH.branch("judge", enough, {True: "done", False: "plan"})
GRAPH.end("done", output="{{verdicts}} after {{rounds}} rounds")


async def main() -> None:
    """Run the clerk, then the graph."""
    async with callboard.Root() as root:
        calls = Calls()
        model = ScriptedModel([call("look_up", number=7), Order(7, "shipped")])
        outcome = await root.run(CLERK, "Where is order 7?", deps=Shop({7: "shipped"}), model=model, on_event=calls)
        calls.assert_called("look_up", number=7)
        order = outcome.unwrap()  # type checkers know that it is an Order
        print(f"order {order.number} is {order.state}")

        reviewed = await root.run(GRAPH, "a bicycle", model=FunctionModel(lambda _: "good"))
        print(reviewed.unwrap())
    print(GRAPH.to_yaml())


trio.run(main)
