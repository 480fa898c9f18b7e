"""Shared state of a server's clients: agents, active runs, and limits.

A run belongs to the server's actor, not to the request that began it. Questions arrive through a policy at the top of
the tree. It holds a question if the run's client can show a form, else it passes the question on. So a client without
forms gets the result of `--no-input`: the question's default, or a failed run.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Never

import msgspec
import trio

from ....protocol.errors import UsageError
from ....protocol.kernel.questions import Answer, Question
from ....protocol.outcome import Outcome
from ....protocol.requests import Limits, RunRequest
from ....supervisors import Actor, Ref
from ....supervisors.bus import Listener
from ....supervisors.escalation import HOLD, PASS, Verdict
from ...io.json_schema import schema_errors
from ...runs.begin import perform
from ...runs.loading import RunCallbacks
from ...runs.root import Root
from .call import McpToolCall, can_be_asked
from .offers import OfferedAgent

Json = Any


class ServiceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of all runs, which clients can't change.

    Attributes:
        model: `client:model` for everything that does not name its own.
        limits: limits of each run.
        allow, yes, roots: as for `run`: tools without permission questions, or all of them; directories for the `fs_*`
            tools.
        max_runs: maximum number of concurrent runs, including parked ones.
        question_timeout: seconds that a client's user has for a question.
    """

    model: str | None = None
    limits: Limits = Limits()
    allow: tuple[str, ...] = ()
    yes: bool = False
    roots: tuple[str, ...] = ()
    max_runs: int = 100
    question_timeout: float = 600.0


class Service:
    """Shared state and runs.

    Args:
        me: actor of the server; the calls are its children.
    """

    def __init__(self, me: Actor, root: Root, offers: Mapping[str, OfferedAgent], options: ServiceOptions) -> None:
        self.me = me
        self.offers = offers
        self.options = options
        self._root = root
        self._calls: set[McpToolCall] = set()
        self._by_run: dict[str, McpToolCall] = {}
        self._parked: dict[str, tuple[McpToolCall, Ref[Never, None]]] = {}

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Handle the questions of the server's runs for the duration of the block."""
        top = self._root.kernel.actor
        before, top.policy = top.policy, self._policy
        try:
            yield
        finally:
            top.policy = before

    def begin(self, offer: OfferedAgent, arguments: Mapping[str, Json], *, asks: bool) -> McpToolCall:
        """Start a run.

        Raises:
            UsageError: the arguments are invalid, or there are too many runs.
        """
        try:
            errors = schema_errors(arguments, offer.schema)
        except RecursionError:
            errors = ["they are nested too deep"]
        if errors:
            raise UsageError(f"The arguments of '{offer.name}' don't fit: {'; '.join(errors)}")
        if max(len(self._calls), len(self._parked)) >= self.options.max_runs:
            raise UsageError(f"{self.options.max_runs} runs are under way, which is the most; try again later")
        call = McpToolCall(offer, self._root.kernel.questions, asks=asks, began=self._by_run.__setitem__)
        self._calls.add(call)
        ref = self.me.spawn(call.play, partial(self._run, offer, arguments), name=offer.name, link=False)
        ref.on_end(lambda _: self._over(call))
        return call

    # --- between two requests -------------------------------------------------------------------------------

    def park(self, call: McpToolCall) -> str:
        """Park a call for the request that answers its questions; return the token that the request must present."""
        state = secrets.token_urlsafe(24)
        self._parked[state] = call, self.me.spawn(self._wait_for_answer, state, name="parked", link=False)
        return state

    def resume(self, state: str, name: str) -> McpToolCall | None:
        """Return a parked call, once; None if there is none, or it is another agent's."""
        if state not in self._parked or self._parked[state][0].offer.name != name:
            return None
        call, waiting = self._parked.pop(state)
        waiting.cancel()
        return call

    async def _wait_for_answer(self, _: Actor, state: str) -> None:
        await trio.sleep(self.options.question_timeout)
        call, _ref = self._parked.pop(state)
        call.cancel()

    # --- runs -----------------------------------------------------------------------------------------------

    async def _run(self, offer: OfferedAgent, arguments: Mapping[str, Json], on_event: Listener) -> Outcome:
        options = self.options
        request = RunRequest(
            target=offer.agent.file,
            prompt=arguments.get("prompt", ""),
            variables=arguments.get("variables") or {},
            state=arguments.get("state") or {},
            model=options.model,
            limits=options.limits,
            allow=options.allow,
            yes=options.yes,
            roots=options.roots,
        )
        return await perform(request, RunCallbacks(loaded=offer.agent, on_event=on_event), self._root)

    def _over(self, call: McpToolCall) -> None:
        self._calls.discard(call)
        for name in [name for name, known in self._by_run.items() if known is call]:
            del self._by_run[name]

    def _policy(self, question: Question) -> Answer | Verdict:
        call = self._by_run.get(question.run)
        if call is None or not call.asks or not can_be_asked(question):
            return PASS
        call.ask(question)
        return HOLD
