"""Agents called by agents: found, read once per run, and played as children of whoever calls."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...protocol.errors import NodeFailed
from ..context import AgentCall
from ..graph.failures import retold
from .prepared import Prepared
from .target import GraphAgent, LoopAgent, find, read

if TYPE_CHECKING:
    from ...supervisors import Actor


class Children:
    """The `run_agent` of one run.

    Args:
        config_dir: its `agents/` come first, then the neighbours of the agent that calls.
        compat: the dialect forced from outside, or None.
    """

    def __init__(self, config_dir: Path, compat: str | None) -> None:
        self._config_dir = config_dir
        self._compat = compat
        self._read: dict[tuple[str, Path], GraphAgent | LoopAgent] = {}

    async def __call__(self, me: Actor, call: AgentCall) -> str:
        """Play the agent; the text of its answer.

        Raises:
            CallboardError: it failed; an error of the class that the child failed with.
        """
        key = (call.name, call.near)
        agent = self._read.get(key)
        if agent is None:
            agent = self._read[key] = self._load(call)
        prepared = Prepared(agent, call.variables, self._compat)
        result = await prepared.play(me, call.prompt, call.context, depth=call.depth)
        if result.error is not None:
            raise retold(result.error, f"Agent '{call.name}' failed: {result.error}")
        return result.output

    def _load(self, call: AgentCall) -> GraphAgent | LoopAgent:
        home = self._config_dir / "agents" / call.name
        if not home.is_dir():
            home = call.near.parent / call.name
        if not home.is_dir():
            raise NodeFailed(f"Agent '{call.name}' not found in {self._config_dir / 'agents'} or {call.near.parent}")
        return read(find(home), self._config_dir, compat=self._compat)
