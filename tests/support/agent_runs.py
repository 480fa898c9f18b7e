"""Runs of agents: a configuration directory, a root, and the scripted model server."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import callboard
from callboard.protocol.events import TERMINAL, Event
from support.fake_models import FakeModels


class AgentRunner:
    """Writes agents into a configuration directory and runs them under one root.

    Attributes:
        config_dir: the directory; its default model is the scripted server.
        models: that server.
        root: what all runs of the test share.
        events: of every run, in order.
    """

    def __init__(self, config_dir: Path, models: FakeModels, root: callboard.Root) -> None:
        self.config_dir = config_dir
        self.models = models
        self.root = root
        self.events: list[Event] = []

    def agent(self, graph: str, /, name: str = "g", **scripts: str) -> Path:
        """Write `agents/<name>/graph.yaml` and its scripts (`a="echo {}"` is `a.sh`); the agent's directory.

        A graph without a `name:` gets this one.
        """
        home = self.config_dir / "agents" / name
        home.mkdir(parents=True, exist_ok=True)
        text = textwrap.dedent(graph).strip() + "\n"
        if not text.startswith("name:"):
            text = f"name: {name}\n{text}"
        (home / "graph.yaml").write_text(text)
        for script, source in scripts.items():
            (home / f"{script}.sh").write_text(source + "\n")
        return home

    def plain(self, config: str, /, name: str) -> Path:
        """Write `agents/<name>/config.yaml`; the agent's directory."""
        home = self.config_dir / "agents" / name
        home.mkdir(parents=True, exist_ok=True)
        (home / "config.yaml").write_text(f"name: {name}\n" + textwrap.dedent(config).strip() + "\n")
        return home

    async def run(
        self, prompt: str = "", /, target: str | Path | callboard.GraphAgent | callboard.LoopAgent = "g", **options: Any
    ) -> callboard.Outcome:
        """`callboard.run` of that agent under this root; its events are added to `events`."""
        heard = options.pop("on_event", None)

        def on_event(event: Event) -> None:
            self.events.append(event)
            if heard is not None:
                heard(event)

        return await callboard.run(target, prompt, root=self.root, on_event=on_event, **options)

    def kinds(self, *prefixes: str) -> list[str]:
        """The kinds of the events so far that begin with one of `prefixes`."""
        return [event.kind for event in self.events if event.kind.startswith(prefixes or ("",))]

    def of(self, kind: str) -> list[Any]:
        """The data of the events of this kind so far, without warnings of labels: tests run without a sandbox."""
        found = [event.data for event in self.events if event.kind == kind]
        return [data for data in found if getattr(data, "code", "") != "labels"]

    @property
    def warnings(self) -> list[str]:
        """The codes of the warnings so far, those about the file left out."""
        return [data.code for data in self.of("run.warning") if data.code in RUNTIME_WARNINGS]

    def check_stream(self) -> None:
        """One run's events are numbered without gaps, begin with its start and end with its one end."""
        assert [event.seq for event in self.events] == list(range(1, len(self.events) + 1))
        assert self.events[0].kind == "run.started"
        assert [event.kind for event in self.events if event.kind in TERMINAL] == [self.events[-1].kind]


RUNTIME_WARNINGS = ("node_failed", "item_failed", "lanes_dropped", "answers_left")


def at_work(root: callboard.Root) -> list[str]:
    """The actors at the top of the tree, but for the limiters of models, which stay."""
    return [child.name for child in root.kernel.actor.children if child.name != "limiters"]
