"""The runs that are under way in this process, whatever has started them: heard, logged, and put away.

Each run that is started here has a task of its own, and outlives the connection that requested it.
Every event passes `hear`, in the task in which it happens; so the work there is quick.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio

from .....protocol.control.caller import LOCAL, Caller
from .....protocol.control.things import RunInfo
from .....protocol.errors import ActorCancelled, Denied, NotFound
from .....protocol.events import Event, Warned
from .....protocol.requests import RunRequest
from ....io.redact import Redactor, secrets_of
from ....runs.begin import new_id, perform
from ....runs.loading import Hooks
from ....views.run_view import RunView
from ..logs.runs import RunLogs
from .live_run import HubOptions, LiveRun
from .summary import rfc3339

if TYPE_CHECKING:
    from ....runs.root import Root
    from ....work.models.recorder import Recorder

log = logging.getLogger("callboard.control")


class Running:
    """See the module.

    Args:
        root: whose runs these are.
        logs: where they are written down.
        redact: takes secrets out of an encoded event.

    Attributes:
        live: those that are not yet all on disk, by id.
        nursery: where those go on that are started here.
    """

    def __init__(
        self, root: Root, logs: RunLogs, options: HubOptions, redact: Callable[[bytes], bytes] | None = None
    ) -> None:
        self.live: dict[str, LiveRun] = {}
        self.nursery: trio.Nursery
        self._root = root
        self._logs = logs
        self._options = options
        self._redact = redact
        self._starting: dict[str, tuple[RunInfo, trio.TaskStatus[None] | None]] = {}

    @property
    def under_way(self) -> int:
        """How many there are that have no end yet."""
        return len(self._starting) + sum(not record.over for record in self.live.values())

    def owner_of(self, run: str) -> str:
        """The subject that a run belongs to; a run not started through the hub is the local user's."""
        record = self.live.get(run)
        return record.info.owner if record is not None else LOCAL.subject

    def view_of(self, run: str) -> RunView | None:
        """What the events of a run under way come to."""
        record = self.live.get(run)
        return record.view if record is not None else None

    async def start(self, info: RunInfo, request: RunRequest, hooks: Hooks) -> str:
        """Start a run, and wait until it has begun; its id, which replaces that of `info`.

        Raises: what `callboard.run` raises before a run begins.
        """
        id = new_id()
        while id in self.live or id in self._starting or not self._logs.is_free(id):
            id = new_id()
        info, request = msgspec.structs.replace(info, run=id), msgspec.structs.replace(request, id=id)
        self._starting[id] = info, None  # it counts from now on
        try:
            await self.nursery.start(self._keep, info, request, hooks)
        finally:
            self._starting.pop(id, None)
        return id

    def recorder(self, run: str) -> Recorder:
        """Keeps what the models of this run see and say."""
        known = Redactor(secrets_of(self._root.settings, os.environ))
        redact = self._redact
        return self._logs.recorder(run, known.data if redact is None else lambda line: redact(known.data(line)))

    def hear(self, event: Event) -> None:
        """An event of any run."""
        id = event.run
        record = self.live.get(id)
        if record is not None:
            record.add(event)
        elif event.seq == 1:
            self._begin(id, event)

    async def _keep(
        self, info: RunInfo, request: RunRequest, hooks: Hooks, *, task_status: trio.TaskStatus[None]
    ) -> None:
        self._starting[info.run] = info, task_status
        try:
            hooks = msgspec.structs.replace(hooks, owner=info.owner)
            wanted = self._root.settings.keep_requests
            if (self._options.keep_requests if wanted is None else wanted) and hooks.recorder is None:
                hooks = msgspec.structs.replace(hooks, recorder=self.recorder)
            await perform(request, hooks, self._root)
            if info.run in self._starting:
                raise ActorCancelled(f"{info.run} was over before it began")
        except Exception:  # a run that ends badly must not end the hub
            if info.run in self._starting:  # this is for who starts it
                raise
            log.exception("%s ended without an outcome", info.run)
        finally:
            self._starting.pop(info.run, None)
            record = self.live.get(info.run)
            if record is not None:
                record.lose()

    def _begin(self, id: str, event: Event) -> None:
        info, begun = self._starting.pop(id, (RunInfo(run=id, owner=LOCAL.subject), None))
        info.started = rfc3339(event.ts)
        run_log = self._logs.begin(info, partial(self._log_broke, id))
        record = self.live[id] = LiveRun(info, run_log, partial(self._put_away, id), self._options, self._redact)
        record.add(event)
        run_log.summarise(info)  # by now it is known what runs
        if begun is not None:
            begun.started()

    def _put_away(self, id: str) -> None:
        record = self.live.pop(id, None)
        if record is not None:  # else it was removed
            self._logs.put_away(record.info)

    def _log_broke(self, id: str) -> None:
        """The log of a run can't be written now: an event says so to its subscribers."""
        record = self.live.get(id)
        if record is None:  # the run was removed
            return
        log.error("the log of %s can't be written: %s", id, record.log.trouble)
        actor = self._root.kernel.actor.child(id)
        if actor is not None and actor.end is None:
            text = (
                f"the log of this run can't be written ({record.log.trouble}); the run goes on, and its events are "
                "kept in memory, as far as there is room, until they can be"
            )
            actor.emit(Warned(code="log_broken", message=text))


def sees(caller: Caller, owner: str) -> bool:
    """Whether the runs of this owner are shown to the caller."""
    return caller.has("admin:runs") or (caller.has("read:runs") and owner == caller.subject)


def check_owner(caller: Caller, owner: str, run: str) -> None:
    """Check that the caller may have this run.

    Raises:
        Denied: it has another owner, and the caller may know that it exists.
        NotFound: it has another owner.
    """
    if owner == caller.subject or caller.has("admin:runs"):
        return
    if caller.has("read:runs"):
        raise Denied(f"{run} belongs to another subject; that needs the scope 'admin:runs'")
    raise no_run(run)


def no_run(run: str) -> NotFound:
    return NotFound(f"there is no run {run[:60]!r}")
