"""What all clients of a server share: the agents, the runs under way, and their bounds.

A run belongs to the server's actor, not to the request that began it. Questions reach us by a policy at the top of the
tree: it holds those of runs whose client can show a form, and lets all others pass, so that a client without forms
gets what `--no-input` gets: the question's default, or a failed run.
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
from ...runs.loading import Hooks
from ...runs.root import Root
from .call import Call
from .elicitation import can_be_asked
from .offers import Offer

Json = Any


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How runs are run for clients, none of which can say so itself.

    Attributes:
        model: `client:model` for everything that does not name its own.
        limits: what each run may use at most.
        allow, yes, roots: as for `run`: tools that need no permission, or none does; directories for the `fs_*` tools.
        max_runs: runs under way at once, parked ones included.
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
    """See the module.

    Args:
        me: the server's actor; the runs' calls are its children.
    """

    def __init__(self, me: Actor, root: Root, offers: Mapping[str, Offer], options: Options) -> None:
        self.me = me
        self.offers = offers
        self.options = options
        self._root = root
        self._calls: set[Call] = set()
        self._by_run: dict[str, Call] = {}
        self._parked: dict[str, tuple[Call, Ref[Never, None]]] = {}

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Take the questions of our runs while the block lasts."""
        top = self._root.kernel.actor
        before, top.policy = top.policy, self._policy
        try:
            yield
        finally:
            top.policy = before

    def begin(self, offer: Offer, arguments: Mapping[str, Json], *, asks: bool) -> Call:
        """Start a run.

        Raises:
            UsageError: the arguments don't fit, or there are too many runs already.
        """
        try:
            errors = schema_errors(arguments, offer.schema)
        except RecursionError:
            errors = ["they are nested too deep"]
        if errors:
            raise UsageError(f"The arguments of '{offer.name}' don't fit: {'; '.join(errors)}")
        if max(len(self._calls), len(self._parked)) >= self.options.max_runs:
            raise UsageError(f"{self.options.max_runs} runs are under way, which is the most; try again later")
        call = Call(offer, self._root.questions, asks=asks, began=self._by_run.__setitem__)
        self._calls.add(call)
        ref = self.me.spawn(call.play, partial(self._run, offer, arguments), name=offer.name, link=False)
        ref.on_end(lambda _: self._over(call))
        return call

    # --- between two requests -------------------------------------------------------------------------------

    def park(self, call: Call) -> str:
        """Keep a call for the request that answers its questions; what that request has to show."""
        state = secrets.token_urlsafe(24)
        self._parked[state] = call, self.me.spawn(self._wait_for_answer, state, name="parked", link=False)
        return state

    def resume(self, state: str, name: str) -> Call | None:
        """The call that was parked; None if there is none, or it is another agent's. Good for once."""
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

    async def _run(self, offer: Offer, arguments: Mapping[str, Json], on_event: Listener) -> Outcome:
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
        return await perform(request, Hooks(loaded=offer.agent, on_event=on_event), self._root)

    def _over(self, call: Call) -> None:
        self._calls.discard(call)
        for name in [name for name, known in self._by_run.items() if known is call]:
            del self._by_run[name]

    def _policy(self, question: Question) -> Answer | Verdict:
        call = self._by_run.get(question.run)
        if call is None or not call.asks or not can_be_asked(question):
            return PASS
        call.ask(question)
        return HOLD
