"""Random trees of agents with limits, prices, failures and cancellations: no limit is passed by more than one request.

The model server keeps the books: it knows the path of every request by its prompt, and what it has billed for it.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from support.fake_models import FakeModels, Reply, Request

import callboard
from callboard.actors.work.models.gateway import Gateway
from callboard.protocol.events import Event, LlmWaiting

INPUT, OUTPUT = 100.0, 300.0
"""USD per million tokens."""

MOST_OUTPUT = 40


class NoJitter(random.Random):
    """Retries without a wait."""

    def random(self) -> float:
        return 0.0


class Tree:
    """Agents of a seed: their files, and what each of them and each node may cost.

    Attributes:
        agents: name to `graph.yaml`.
        caps: USD by path, `/` for the run: `/a/n1/` is all that happens below the node `n1` of the agent `a`.
    """

    def __init__(self, seed: int) -> None:
        self.rand = random.Random(seed)
        self.agents: dict[str, Any] = {}
        self.caps: dict[str, float] = {"/": self.cap()}
        self.grow("/", 0)

    def cap(self) -> float:
        return round(self.rand.uniform(0.005, 0.2), 4)

    def limits(self, path: str) -> dict[str, Any]:
        if self.rand.random() < 0.5:
            return {}
        self.caps[path] = self.cap()
        return {"limits": {"max_cost": self.caps[path]}}

    def grow(self, path: str, depth: int) -> str:
        """Make an agent that works below `path`; its name."""
        name = f"agent{len(self.agents)}"
        self.agents[name] = {}
        nodes: dict[str, Any] = {}
        home = f"{path}{name}/"
        graph: dict[str, Any] = {"name": name, **self.limits(home)}
        wide = [f"n{number}" for number in range(self.rand.randint(1, 4))]
        nodes["first"] = {"type": "llm", "prompt": f"{home}first/", "next": wide, "on_error": "continue"}
        for id in wide:
            below = f"{home}{id}/"
            if depth < 2 and self.rand.random() < 0.4:
                node = {"type": "agent", "prompt": "go", **self.limits(below)}
                node["agent"] = self.grow(below, depth + 1)
            else:
                padding = "x" * self.rand.randint(0, 2_000)
                node = {"type": "llm", "prompt": below + padding, "max_attempts": 2, **self.limits(below)}
            nodes[id] = {**node, "on_error": "continue", "next": "last"}
        nodes["last"] = {"type": "llm", "prompt": f"{home}last/", "join": "all", "next": "end", "on_error": "continue"}
        nodes["end"] = {"type": "end"}
        self.agents[name] = {**graph, "start": "first", "nodes": nodes}
        return name


class Books:
    """What the provider has billed, by path."""

    def __init__(self, rand: random.Random) -> None:
        self.rand = rand
        self.bills: list[tuple[str, float]] = []

    def answer(self, request: Request) -> Reply:
        kind = self.rand.random()
        if kind < 0.1:
            return Reply(status=503, error="not now")
        if kind < 0.15:
            return Reply("broken", drop="middle")
        taken, given = len(request.body) // self.rand.randint(2, 6), self.rand.randint(1, MOST_OUTPUT)
        prompt = request.json["messages"][-1]["content"].rstrip("x")
        self.bills.append((prompt, (taken * INPUT + given * OUTPUT) / 1e6))
        empty = self.rand.random() < 0.05  # costs, and is asked again
        return Reply("" if empty else "said", input_tokens=taken, output_tokens=given)

    def check(self, caps: dict[str, float]) -> None:
        for path, cap in caps.items():
            below = [cost for where, cost in self.bills if where.startswith(path)]
            assert sum(below) < cap + max(below, default=0.0) + 1e-9, f"{path} of {cap}: {below}"


def config(models: FakeModels) -> str:
    model = {"name": "model", "input_price": INPUT, "output_price": OUTPUT}
    client = {"type": "openai-compatible", "name": "fake", "api_base": models.openai_base, "api_key": "sk"}
    return json.dumps(
        {"model": "fake:model", "max_output_tokens": MOST_OUTPUT, "clients": [{**client, "models": [model]}]}
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("trees", [30, pytest.param(1000, marks=pytest.mark.soak)])
async def test_no_limit_in_a_random_tree_is_passed_by_more_than_one_request(
    trees: int, tmp_path: Path, fake_model: FakeModels
) -> None:
    reached = waited = 0
    for seed in range(trees):
        tree = Tree(seed)
        home = tmp_path / str(seed)
        home.mkdir()
        (home / "config.yaml").write_text(config(fake_model))
        for name, graph in tree.agents.items():
            (home / "agents" / name).mkdir(parents=True)
            (home / "agents" / name / "graph.yaml").write_text(json.dumps(graph))
        books = Books(tree.rand)
        fake_model.answer_with(books.answer)
        events: list[Event] = []
        async with callboard.Root(config_dir=home) as root:
            root.gateway = Gateway(root.kernel, root.settings, {}, rng=NoJitter())
            outcome = await callboard.run(
                "agent0",
                root=root,
                limits=callboard.Limits(max_cost=tree.caps["/"], timeout=tree.rand.choice([None, None, 0.05])),
                on_event=events.append,
            )
        reached += outcome.exit_code == 4
        waited += any(isinstance(event.data, LlmWaiting) and event.data.reason == "budget" for event in events)
        books.check(tree.caps)
    assert reached > trees / 10
    assert waited > trees / 10
