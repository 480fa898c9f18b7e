"""Remote children: parts of a worker's run that other workers execute as runs of their own.

Each part has an actor in this process, which submits the part to the queue and waits for its outcome.

    id          Derived from the path of that actor, so a recovered run finds the part that it has already started.
    queue       Accepts a part only from the owner of the run, after everything that led to it is on disk.
    state       Read upon notification and every second.
    questions   Asked here, by the waiting actor; answers are passed to the part.
    usage       Charged here while the part runs, to all limits except the daily one, which the part's worker checks.
    cancel      A cancellation of the actor cancels the part. A worker that ends leaves both to the next worker.

A run that waits for parts takes no room of its worker. Otherwise all workers could be full of waiting runs, and no
worker could execute the parts.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.control.resources import RunInfo
from ....protocol.decoding import decode_json
from ....protocol.errors import CallboardError, NobodyToAsk, NotFound, TimedOut
from ....protocol.events import RunPlaced, Warned
from ....protocol.kernel.questions import Answer, Question
from ....protocol.outcome import Outcome
from ....protocol.placement import PartOf
from ....protocol.requests import Limits, RunRequest
from ....supervisors.cluster import queries, queue, workers
from ....supervisors.cluster.queue import Parent, Wanted
from ...work.journal.actor_journal import noted
from ...work.journal.pending_answers import encode_answer
from ...work.journal.run_journal import PART
from ...work.labels.labels import Labels
from ...work.sandbox.run_sandbox import current as sandbox
from ...work.spending.accounts import NOTHING, Amount
from ...work.spending.meter import PartUsage
from ..control.logs.files import logged
from ..control.runs.summary import LONGEST_PROMPT, outcome_of, rfc3339
from .bundle import Bundled, bundled
from .logs import info_of
from .relay import KEY, ask

if TYPE_CHECKING:
    from pathlib import Path

    from ....supervisors import Actor, Ref
    from ....supervisors.cluster.queries import StoredRunState
    from ...runs.root import Root
    from ...work.context import SeparatePart
    from .membership import ClusterMembership

LOOK_EVERY = 1.0
"""Seconds between two reads without a notification."""

GATHER = 0.02
"""Seconds to collect notifications after a read."""

LATER = 1.0
"""Additional seconds of a part's time limit. The waiting actor times out first, and its message names the slow part."""

log = logging.getLogger("callboard.cluster")


class _Waited:
    """Last known state of a part."""

    def __init__(self) -> None:
        self.info: RunInfo | None = None
        self.asked: dict[str, Question] = {}
        self.is_gone = False
        self.news = trio.Event()


class Placing:
    """Executor of remote children: puts them into the queue, and waits for their outcomes.

    Args:
        root: executes the runs.
        seat: membership of this process.
        lives: claimed runs, each with the number of its incarnation.
        lose: called with a run that turns out to belong to another worker.
    """

    def __init__(
        self, root: Root, seat: ClusterMembership, lives: Mapping[str, int], lose: Callable[[str], None]
    ) -> None:
        self._root = root
        self._seat = seat
        self._lives = lives
        self._lose = lose
        self._waited: dict[str, _Waited] = {}
        self._waiting: Counter[str] = Counter()
        self._sent: dict[tuple[str, Path], Bundled] = {}
        self._news = trio.Event()

    @property
    def waiting(self) -> int:
        """Number of runs that wait for remote children."""
        return len(self._waiting)

    def hear(self, kind: str, about: list[str]) -> None:
        """Wake `watch` for a notification about runs (`r`) that are waited for, or about questions (`k`)."""
        if self._waited and (kind == "k" or (kind == "r" and not self._waited.keys().isdisjoint(about))):
            self._news.set()

    def over(self, run: str) -> None:
        """Forget the bundles of a run that has ended here."""
        self._sent = {key: sent for key, sent in self._sent.items() if key[0] != run}

    async def watch(self) -> None:
        """Read the state of all remote children repeatedly, until cancelled."""
        while True:
            with trio.move_on_after(LOOK_EVERY):
                await self._news.wait()
            self._news = trio.Event()
            if not self._waited:
                continue
            runs = list(self._waited)
            try:
                found = await self._seat.read(partial(queries.run_states_of, runs=runs))
                asked = await self._seat.read(partial(queries.questions_of_parts, runs=runs))
            except CallboardError as error:
                log.debug("the state of remote children can't be read: %s", error)
                continue
            questions: dict[str, dict[str, Question]] = {}
            for each in asked:
                questions.setdefault(each.run, {})[each.id] = decode_json(each.data, Question)
            stored = {each.run: each for each in found}
            for run in runs:
                self._take_in(run, stored.get(run), questions.get(run, {}))
            await trio.sleep(GATHER)

    def _take_in(self, run: str, stored: StoredRunState | None, asked: dict[str, Question]) -> None:
        waited = self._waited.get(run)
        if waited is None:
            return
        info = None if stored is None else info_of(stored)
        if info == waited.info and asked == waited.asked and info is not None:
            return
        waited.info, waited.asked, waited.is_gone = info, asked, stored is None
        waited.news.set()

    # --- one part -----------------------------------------------------------------------------------------------

    async def play(self, request: RunRequest, me: Actor, part: SeparatePart) -> Outcome:
        """Execute a remote child and return its outcome; `request` is the request of the whole run.

        A cancellation of the actor cancels the child and waits for its end, unless the run is handed over. If another
        worker has claimed the run, it is interrupted here instead. See `work.context.RemoteParts`.

        Raises:
            NotFound: the child was removed from the cluster.
            CallboardError: the files of the agent can't be sent, or a limit of this run was reached.
        """
        run = me.stream.run
        kept = self._root.kept.get(run)
        if kept is not None:
            await kept.barrier()
        wanted = await self._wanted(request, me, part)
        if not await self._seat.at_last(partial(queue.submit, wanted=wanted)):
            self._lose(run)
            # `_lose` interrupts this actor's run.
            await trio.sleep_forever()
        sent = self._sent.get((run, part.target))
        if sent is not None:  # the cluster has the bundle now, so its data need not stay in memory
            self._sent[run, part.target] = Bundled(sent.target, sent.hash)
        with self._waits(run, wanted.run) as waited:
            me.emit(RunPlaced(part=wanted.run, agent=part.name))
            try:
                return await self._outcome(me, part, wanted.run, waited)
            except BaseException:  # cancellation included: a part without a waiting actor must not continue
                if kept is None or not kept.is_handed_over:
                    with me.cleanup():
                        await self._cancel(wanted, waited)
                raise

    @contextmanager
    def _waits(self, run: str, part: str) -> Iterator[_Waited]:
        waited = self._waited[part] = _Waited()
        self._waiting[run] += 1
        self._news.set()
        try:
            yield waited
        finally:
            self._waited.pop(part, None)
            self._waiting[run] -= 1
            if not self._waiting[run]:
                del self._waiting[run]

    async def _wanted(self, request: RunRequest, me: Actor, part: SeparatePart) -> Wanted:
        run = me.stream.run
        id = "run-" + hashlib.sha256(f"{me.path} {part.attempt}".encode()).hexdigest()[:20]
        sent = self._sent.get((run, part.target))
        if sent is None:
            config_dir = self._root.config_dir
            sent = await trio.to_thread.run_sync(bundled, part.target, config_dir, os.environ)
            self._sent[run, part.target] = sent
        await self._seat.at_last(sent.put)
        needs = tuple(dict.fromkeys((*request.needs, *part.needs)))
        owner = part.context.meter.owner
        info = RunInfo(
            run=id,
            target=part.name,
            name=part.name,
            status="queued",
            owner=owner,
            started=rfc3339(datetime.now(UTC)),
            prompt=part.prompt[:LONGEST_PROMPT],
            parent=run,
        )
        return Wanted(
            run=id,
            request=msgspec.json.encode(_request(request, id, run, sent.target, part, needs)),
            info=msgspec.json.encode(info),
            bundle=sent.hash,
            needs=needs,
            subject=owner,
            parent=Parent(run=run, sign=self._seat.sign, life=self._lives.get(run, 0)),
        )

    async def _outcome(self, me: Actor, part: SeparatePart, id: str, waited: _Waited) -> Outcome:
        relays: dict[str, Ref] = {}
        charged, warned = NOTHING, False
        while True:
            await waited.news.wait()
            waited.news = trio.Event()
            for question in waited.asked.values():
                if question.id not in relays:
                    relays[question.id] = me.spawn(self._relay, id, question, name=question.id, link=False)
            for closed in relays.keys() - waited.asked.keys():
                await _ended(relays.pop(closed))
            info = waited.info
            if waited.is_gone or info is None:
                raise NotFound(f"{id}, which executed '{part.name}', was removed")
            charged = _charge(part, charged, Amount(info.input_tokens + info.output_tokens, info.cost))
            if info.status == "interrupted":
                if not warned:
                    text = (
                        f"{id}, which executes '{part.name}', was interrupted and waits; resume it: callboard "
                        f"resume {id}"
                    )
                    me.emit(Warned(code="part_interrupted", message=text))
                warned = True
            elif info.over:
                break
        for relay in relays.values():
            await _ended(relay)
        line = await self._seat.at_last(lambda db: queries.last_event(db, id))
        outcome = outcome_of(info, None if line is None else logged(line))
        await self._count(me, part, id, outcome, charged)
        return outcome

    async def _count(self, me: Actor, part: SeparatePart, id: str, outcome: Outcome, charged: Amount) -> None:
        """Charge the usage of a part to the run, exactly once across all incarnations."""
        is_new = False

        async def used() -> PartUsage:
            nonlocal is_new
            is_new = True
            return PartUsage(models=outcome.usage, turns=outcome.turns, tool_calls=outcome.tool_calls)

        # A recovered run gets the stored usage here without calling `used`, so `is_new` stays False.
        usage = await noted(me, PART + id, PartUsage, used)
        context = part.context
        if context.flow is not None and outcome.carries is not None:
            context.flow.add(Labels(untrusted=outcome.carries.untrusted, private=outcome.carries.private))
        if not is_new:  # the recovery has already counted it
            return
        for total in context.meter.take_in(usage):
            me.emit(total)
        if context.account is not None:
            amount = usage.amount
            rest = Amount(max(0, amount.tokens - charged.tokens), max(0.0, amount.cost - charged.cost))
            context.account.charge_all(rest, usage.turns)

    async def _cancel(self, wanted: Wanted, waited: _Waited) -> None:
        assert wanted.parent is not None
        info = decode_json(wanted.info, RunInfo)
        info.status, info.ended, info.exit_code = "cancelled", rfc3339(datetime.now(UTC)), 130
        by, data = wanted.parent.run, msgspec.json.encode(info)
        await self._seat.at_last(lambda db: queue.cancel(db, wanted.run, by, data))
        # Wait for the end, so that no effect of the part follows the cancellation.
        while not (waited.is_gone or (waited.info is not None and waited.info.over)):
            waited.news = trio.Event()
            self._news.set()
            await waited.news.wait()

    async def _relay(self, me: Actor, part: str, question: Question) -> None:
        """Ask a part's question here and pass the answer on.

        A secret goes directly to the part's worker; if that fails, the question is asked again.
        """
        told = False
        while not told:
            try:
                answer = await me.ask_person(msgspec.structs.replace(question, id="", actor="", run=""))
            except (NobodyToAsk, TimedOut):  # the part detects this by itself
                return
            if question.secret:
                told = await self._send_secret(part, question.id, answer)
                continue
            data = encode_answer(Answer(question=question.id, value=answer.value, by=answer.by))
            await self._seat.at_last(partial(queries.answer, question=question.id, data=data))
            told = True

    async def _send_secret(self, part: str, question: str, answer: Answer) -> bool:
        params = msgspec.json.encode({"question": question, "value": answer.value})
        try:
            worker = await self._seat.at_last(lambda db: workers.worker_of(db, part))
            if worker is not None:
                await ask(worker, os.environ.get(KEY, ""), "_question/answer", msgspec.Raw(params))
        except CallboardError as error:
            log.warning("%s", error)
            return False
        return worker is not None


async def _ended(relay: Ref) -> None:
    relay.cancel()
    await relay.wait()


def _charge(part: SeparatePart, before: Amount, now: Amount) -> Amount:
    """Charge the usage since the last call; raises if a limit is reached."""
    account = part.context.account
    if account is not None and now != before:
        # Charged completely before the check: tokens that were used must count even beyond the limit.
        account.charge_all(Amount(max(0, now.tokens - before.tokens), max(0.0, now.cost - before.cost)), 0)
        account.check()
    return now


def _request(
    request: RunRequest, id: str, run: str, target: str, part: SeparatePart, needs: tuple[str, ...]
) -> RunRequest:
    """Return the request of a part, to which the limits and choices of the run apply."""
    context, held = part.context, sandbox.get()
    left = Limits() if context.account is None else context.account.remaining()
    seconds = trio.current_effective_deadline() - trio.current_time()
    carried = None if context.flow is None else context.flow.carried
    return RunRequest(
        id=id,
        target=target,
        prompt=part.prompt,
        model=context.model or None,
        variables=dict(part.variables),
        compat=context.compat,
        limits=msgspec.structs.replace(left, timeout=max(0.0, seconds) + LATER if seconds < float("inf") else None),
        allow_unpriced=context.allow_unpriced,
        no_wait=not context.may_wait,
        strict=request.strict,
        allow=request.allow,
        yes=request.yes,
        cwd=request.cwd,
        on_unknown=context.on_unknown,
        sandbox=request.sandbox,
        workspace=request.workspace,
        needs=needs,
        part=PartOf(
            run=run,
            depth=part.depth,
            max_depth=context.max_depth,
            denied=context.permissions.denied,
            held=() if held is None else held.narrowed,
            untrusted=() if carried is None else carried.untrusted,
            private=() if carried is None else carried.private,
            branch=part.branch,
        ),
    )
