"""Agents that agents call: found, read once per run, and played as the caller's children."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...protocol.agent import read_agent
from ...protocol.errors import CallboardError, FailedEnd, NodeFailed
from ...protocol.events import Warned
from ...protocol.graph.read import read_graph
from ...protocol.place import needs_of
from ...protocol.problems import did_you_mean
from ...protocol.requests import RunRequest
from ..engine.graph.failures import ended_with, retold
from ..engine.graph.findings import agents_in
from ..work.context import AgentCall, Part
from ..work.elsewhere import error_in, take_over
from ..work.journal.scope import here
from ..work.library import AGENTS
from .as_begun import called, called_in, load_again, note_called
from .finding import find, named_file
from .loading import NO_HOOKS, Loader
from .prepared import Input, Prepared
from .target import Loaded, WorkflowAgent

if TYPE_CHECKING:
    from ...protocol.journal import Definition
    from ...supervisors import Actor
    from ..work.journal.of_run import OfRun


class Children:
    """The `run_agent` of one run.

    Args:
        config_dir: its `agents/` come first, then the neighbours of the agent that calls.
        compat: the dialect forced from outside, or None.
        loader: of the run's root.
    """

    def __init__(self, config_dir: Path, compat: str | None, loader: Loader) -> None:
        self._loader = loader
        self._config_dir = config_dir
        self._compat = compat
        self._read: dict[tuple[str, Path], Loaded] = {}
        self._told: dict[str, None] = {}
        self._called: dict[str, Definition] | None = None

    async def __call__(self, me: Actor, call: AgentCall) -> str:
        """Play the agent; the text of its answer. What it went on over is in the call's record.

        Raises:
            CallboardError: it failed; an error of the class that the child failed with.
        """
        scope = here(me)
        kept = None if scope is None else scope.run
        prepared, definition = await self._loader.threaded(lambda: self._prepared(call, kept))
        if kept is not None and definition is not None:
            note_called(kept, _named(call), definition)
        for problem in prepared.absent:
            if (told := str(problem)) not in self._told:
                self._told[told] = None
                me.emit(Warned(code=problem.code, message=told))
        needs = needs_of(call.place if call.place is not None else prepared.place)
        if needs is not None and call.context.elsewhere is not None:
            output, failed = await self._elsewhere(me, call, needs)
        else:
            result = await prepared.play(
                me,
                Input(prompt=call.prompt),
                call.context,
                depth=call.depth,
                record=call.record,
                seat=call.seat,
                escalation_timeout=call.escalation_timeout,
            )
            output, failed = result.output, result.error
        if failed is not None:
            if isinstance(failed, FailedEnd) and call.record is not None:
                call.record.texts = [output]  # what its caller reads of it, in place of all that its models said
            error = ended_with(call.record.failures if call.record is not None else (), failed)
            assert error is not None
            raise retold(error, f"Agent '{call.name}' failed: {error}")
        return output

    async def _elsewhere(self, me: Actor, call: AgentCall, needs: tuple[str, ...]) -> tuple[str, CallboardError | None]:
        """What it says that another worker plays, and what it has failed with."""
        assert call.context.elsewhere is not None
        if call.seat is not None:
            call.seat.address.elsewhere = True
        part = Part(
            name=call.name,
            target=await self._loader.threaded(lambda: self._found(call)),
            needs=needs,
            context=call.context,
            depth=call.depth,
            prompt=call.prompt,
            variables=call.variables,
            attempt=call.attempt,
        )
        outcome = await call.context.elsewhere(me, part)
        if call.record is not None:
            take_over(call.record, outcome)
            if outcome.failures and outcome.output:  # it has come to its end over them
                return outcome.output, None
        return outcome.output, error_in(outcome)

    def unknown(self, name: str, near: Path) -> str | None:
        """What is wrong with the name of an agent that the one in the directory `near` calls; None if it is there."""
        if self._home(name, near) is not None:
            return None
        places = [place for place in self._places(near) if place.is_dir()]
        names = {path.name for place in places for path in place.iterdir() if path.is_dir()}
        where = f"{self._config_dir / 'agents'} or {near.parent}, and not built in"
        hint = did_you_mean(name[:100], names)
        return f"Agent '{name[:100]}' not found in {where}" + (f"; {hint}" if hint else "")

    def near(self, near: Path) -> list[tuple[str, str]]:
        """The agents that the one in the directory `near` can call, by name, with their descriptions."""
        homes: dict[str, Path] = {}
        for place in self._places(near):
            for home in sorted(place.iterdir()) if place.is_dir() else ():
                if agents_in(place)(home.name) == "found":
                    homes.setdefault(home.name, home)
        return [(name, _description(home)) for name, home in sorted(homes.items()) if home != near]

    def _prepared(self, call: AgentCall, kept: OfRun | None) -> tuple[Prepared, Definition | None]:
        """The agent, and its file if a durable run calls it for the first time."""
        key = (call.name, call.near)
        agent, known = self._read.get(key), self._definition(call, kept)
        is_new = agent is None
        if agent is None:
            request = RunRequest(target="", compat=self._compat, variables=dict(call.variables))
            if known is not None:
                agent = load_again(known, request, self._config_dir, call.context.registry)
            else:
                request = msgspec.structs.replace(request, target=str(self._found(call)))
                agent = self._loader.loaded(request, NO_HOOKS)
            if not isinstance(agent, WorkflowAgent):  # the variables are in one of those already
                self._read[key] = agent
        prepared = Prepared(agent, call.variables, self._compat, call.context)
        return prepared, called(agent, prepared) if is_new and known is None and kept is not None else known

    def _definition(self, call: AgentCall, kept: OfRun | None) -> Definition | None:
        """The file of the agent, if an earlier life of the run has called it."""
        if kept is None:
            return None
        if self._called is None:
            self._called = called_in(kept)
        return self._called.get(_named(call))

    def _found(self, call: AgentCall) -> Path:
        home = named_file(call.name, call.near) if call.by_file else None
        home = home or self._home(call.name, call.near)
        if home is None:
            raise NodeFailed(self.unknown(call.name, call.near) or "")
        return home

    def _home(self, name: str, near: Path) -> Path | None:
        if name in ("", ".", "..") or os.sep in name or "\0" in name:  # a model may have made it up
            return None
        return next((place / name for place in self._places(near) if (place / name).is_dir()), None)

    def _places(self, near: Path) -> tuple[Path, ...]:
        return self._config_dir / "agents", near.parent, AGENTS


def _named(call: AgentCall) -> str:
    """The name of an agent, and where it is looked for."""
    return f"{call.name} of {call.near}"


def _description(home: Path) -> str:
    """What the agent's file says it is for; "" if it can't be read."""
    try:
        found = find(home)
    except CallboardError:
        return ""
    read_file = read_agent if found.dialect == "agent" else read_graph
    thing, _ = read_file(found.text, found.file)
    return " ".join((thing.description or "").split()) if thing is not None else ""
