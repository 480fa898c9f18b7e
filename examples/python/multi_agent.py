"""Several agents: a graph with a fan-out and a loop, and an agent that hands work to another."""

import asyncio
from typing import Any

import callboard

researcher = callboard.Agent(name="researcher", instructions="Research one topic.")
writer = callboard.Agent(name="writer", instructions="Write it up.")


def plan(state: dict[str, Any]) -> dict[str, Any]:
    return {"topics": ["speed", "price"], "round": state["round"] + 1}


def enough(state: dict[str, Any]) -> bool:
    return bool(state["round"] >= 2)


# region: peers 10
graph = callboard.Graph("report", state={"round": 0})
graph.node("plan", plan)
graph.map("research", researcher, over="topics", into="notes")
graph.node("write", writer, prompt="Write about {{initial_prompt}}: {{notes}}", into="draft")
graph.edge("plan", "research", "write")
graph.branch("write", enough, {True: "done", False: "plan"})
graph.end("done", output="{{draft}}")
boss = callboard.Agent(name="boss", instructions="Have others research and write.", agents=[researcher, writer])
# endregion


async def main() -> None:
    async with callboard.Root() as root:
        print((await root.run(graph, "a bicycle")).unwrap())
        outcome = await root.run(boss, "Write about a bicycle.")
        print(outcome.unwrap(), [child.agent for child in outcome.children], outcome.usage.keys())


if __name__ == "__main__":
    asyncio.run(main())
