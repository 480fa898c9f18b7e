"""The great run of the durability tests (`whole`), played by workers of a cluster: the first of them is killed, and
another goes on.

One cluster executes it many times, one after another. Its gateway, its model and the surviving worker stay, so that
each time costs one start of a process. The first worker gets the run by a label that only it has; the label is taken
from the run when that worker is dead, as if any could have played it.

The workers share a disk, since python nodes of a workflow leave files in its workspace.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "runs" / "durable"))

from family import PERSONS
from flow import ANSWERS
from support.cluster import SWEEPS, ClusterProcesses, Process, info, until
from support.fake_models import FakeModels
from whole import KilledWholeRun

from callboard.protocol.journal import AnyRow, decode
from callboard.supervisors.cluster.database import connected
from callboard.supervisors.cluster.queries import rows_after

MOST = 100_000
"""Rows of a run."""


class ClusterRun(KilledWholeRun):
    """See the module.

    Attributes:
        cluster: its processes.
        run: the id of the run that is played now.
    """

    def __init__(self, home: Path, models: FakeModels, dsn: str) -> None:
        super().__init__(home, models)
        self.cluster = ClusterProcesses(home / "cluster", dsn, self.config, disk=home / "state")
        self.run = ""
        self._shown: dict[str, dict[str, Any]] = {}
        self._given: set[str] = set()
        self._http = self.cluster.client(self.cluster.gateway())
        self.cluster.worker("second", *SWEEPS)

    def write(self, config: Path) -> None:
        """As there, but the workflow goes with the agents to whoever plays it."""
        super().write(config)
        self._flow.rename(config / "agents" / "flow")
        graph = config / "agents" / "whole" / "graph.yaml"
        graph.write_text(graph.read_text().replace(str(self._flow / "flow.yaml"), "../flow/flow.yaml"))

    def begin(self) -> None:
        """Put it into the queue, for the first worker alone; nothing of an earlier one counts any more."""
        for each in (self.world, self.log):
            each.unlink(missing_ok=True)
        self._models.requests.clear()
        self._shown, self._given = {}, set()
        self.run = self.cluster.start(self._http, "whole", yes=True, needs=["first"])

    def first(self, **order: Any) -> Process:
        """The worker that plays it first."""
        return self.cluster.worker("first", "--has", "first", order=order)

    def until_killed(self, worker: Process) -> bool:
        """People answer until this worker is dead; False if the run is over before."""
        self._while_answering(lambda: worker.process.poll() is not None or info(self._http, self.run)["ended"])
        if worker.process.poll() is None:
            return False
        self.cluster.expire("first")
        return True

    def until_taken_over(self) -> None:
        """Let any worker claim the run, and answer its questions until one has claimed it."""
        self.cluster.sql("update callboard.runs set needs = '{}' where run = %s", self.run)
        self._while_answering(lambda: self.cluster.owner(self.run) == "second" or info(self._http, self.run)["ended"])

    def until_over(self) -> dict[str, Any]:
        """People answer until the run is over; how it stands then."""
        self._while_answering(lambda: info(self._http, self.run)["ended"])
        return info(self._http, self.run)

    def wrongs(self) -> list[str]:
        """What is wrong with its rows, as the database has them; see `cluster_history`."""
        self.cluster.runs = {self.run: self.cluster.runs[self.run]}
        return self.cluster.wrongs([])

    def end(self) -> None:
        """The run, if it is still under way: the next one must not see it."""
        if not info(self._http, self.run)["ended"]:
            self.cluster.sql("update callboard.runs set needs = '{}' where run = %s", self.run)
            self._http.post(f"/v1/runs/{self.run}/cancel")
            self.until_over()

    def rows(self) -> list[tuple[str, AnyRow]]:
        """What the database has of the run."""
        with connected(self.cluster.dsn, "great", 10.0) as db:
            found = rows_after(db, self.run, 0, MOST)
        return [(row.actor, decode(row.data)) for row in found or ()]

    def _while_answering(self, done: Callable[[], Any]) -> None:
        def look() -> Any:
            self._answer()
            return done()

        until(look, look_every=0.05)

    def _answer(self) -> None:
        """Answer what is open, as `playing.Person` does: of its kind PERSON, when so many are open at once."""
        questions = self._http.get("/v1/questions").json()["questions"]
        found = {each["id"]: each for each in questions if each["run"] == self.run}
        for id, each in found.items():
            if id not in self._shown:
                with self.log.open("a") as log:
                    log.write(f"{id} {each.get('node')}\n")
        self._shown.update(found)
        persons = [id for id, each in self._shown.items() if each["text"].startswith("PERSON")]
        together = len(persons) == PERSONS
        for id, each in found.items():
            said = self._said(each, together=together)
            if said is None or id in self._given:
                continue
            if self._http.post(f"/v1/questions/{id}/answer", json={"value": said}).status_code == 200:
                self._given.add(id)

    @staticmethod
    def _said(question: dict[str, Any], *, together: bool) -> str | None:
        text, node = question["text"], question.get("node") or ""
        if text.startswith("PERSON"):
            return f"yes {text.split()[-1]}" if together else None
        if question.get("permission") or "was running when" in text:
            return "again"
        if node == "ok":
            return "yes" if "1" in text else "no"
        if node == "name":
            return "Annabel" if question.get("problem") else "Al"
        return ANSWERS.get(node)
