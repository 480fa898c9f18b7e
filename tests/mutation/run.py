"""Mutation check: do tests fail when the code is changed slightly?

    python tests/mutation/run.py --results tests/mutation/after.jsonl --before tests/mutation/before.jsonl

runs the mutations of `selection.json` one after the other and prints the outcome of each:

    killed     a test failed; its name is printed
    timeout    a test or the whole run did not end; counts as killed
    survived   no test failed within `--limit` seconds of processor time
    gone       the code no longer exists, neither at its path nor in another module

A row of the selection may have `now`: the fields that changed when the code was rewritten so that it is not found by
itself any more, but has one statement in its place.

Results are appended to the `--results` file as JSON lines. To resume, run the same command again: mutations with a
result are skipped. With `--before`, mutations killed there that survive now are listed, and the exit status is 1.

`--save FILE` writes a new selection of `--count` mutations and exits. Equal code and `--seed` give an equal selection.

The tests of a module are those of its package, in this order: files that import the module, its mirror folder
(`actors/engine/graph/plan.py`: `tests/actors/engine/graph`), the parent folders. Tests that need PostgreSQL, a terminal
or a browser are excluded. The tests run in one process, which imports the mutated module; child processes import the
unchanged file. A test that kills a mutation also runs once without it. If it fails there too, the mutation runs again
without that test.

On Linux each mutation has its own PID namespace: mutated code may signal the wrong process, and every leftover process
ends with the namespace. Elsewhere each mutation has its own session, which is killed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from mutations import Mutation, locate, select
from one import LONGEST_TEST, WALL, Job, Result
from relevant import test_files

HERE = Path(__file__).resolve().parent
PACKAGES = ("actors/engine", "actors/runs", "supervisors", "actors/work/tools")
NAMESPACE = ("unshare", "--user", "--map-current-user", "--pid", "--fork", "--kill-child", "--mount-proc")
KILLED = {"killed", "timeout"}
MOST_RED_TESTS = 5
"""Maximum tests excluded from one mutation because they fail without it."""


@cache
def _namespace() -> tuple[str, ...]:
    try:
        works = subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0
    except OSError:
        works = False
    return NAMESPACE if works else ()


class Check:
    """A selection of mutations run against the code under `root`."""

    def __init__(
        self,
        root: Path,
        package: str,
        packages: list[str],
        limit: float,
        show: bool,
        successors: dict[str, Mutation] | None = None,
    ) -> None:
        self.root = root
        self.package = package
        self.packages = packages
        self.limit = limit
        self.show = show
        self.successors = successors or {}
        self.red: dict[str, bool] = {}
        self.lock = threading.Lock()

    def run(self, mutation: Mutation) -> dict[str, object]:
        """Return the row of a mutation."""
        began = time.monotonic()
        row: dict[str, object] = {"id": mutation.id}
        with self.lock:
            here = locate(self.root, self.packages, mutation)
            if here is None and mutation.id in self.successors:
                here = locate(self.root, self.packages, self.successors[mutation.id])
        if here is None:
            return {**row, "outcome": "gone"}
        files = test_files(self.root, self.package, _folder(self.packages, here.path), here)
        job = Job(str(self.root), self.package, files, self.limit, "", asdict(here))
        result = self._start(job)
        while result.outcome in KILLED and self._fails_without(result.test) and len(job.without) < MOST_RED_TESTS:
            job = replace(job, without=[*job.without, result.test])
            result = self._start(job)
        row |= {"outcome": result.outcome, "seconds": round(time.monotonic() - began)}
        if result.test:
            row["test"] = result.test.partition("[")[0]
        if here != mutation:
            row["at"] = f"{here.path}:{here.function}"
        if result.limited:
            row["limited"] = True
        if not result.imported:
            row["imported"] = False
        return row

    def _fails_without(self, test: str) -> bool:
        if "::" not in test:
            return False  # no single test: an import error, a collection error, or the time of the whole run
        if test not in self.red:
            job = Job(str(self.root), self.package, [test], self.limit, "")
            self.red[test] = self._start(job).outcome != "survived"
        return self.red[test]

    def _start(self, job: Job) -> Result:
        # A short prefix: tests create sockets in it, whose paths are limited to 108 bytes.
        with tempfile.TemporaryDirectory(prefix="mut", ignore_cleanup_errors=True) as directory:
            job = replace(job, result=f"{directory}/result.json")
            environment = {**os.environ, "TMPDIR": directory}
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            process = subprocess.Popen(
                [*_namespace(), sys.executable, str(HERE / "one.py"), json.dumps(asdict(job))],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=None if self.show else subprocess.DEVNULL,
                stderr=None if self.show else subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                process.wait(WALL * self.limit + 2 * LONGEST_TEST)
            except subprocess.TimeoutExpired:
                return Result("timeout")
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            try:
                return Result(**json.loads(Path(job.result).read_text()))
            except FileNotFoundError:
                return Result("killed", f"process ended with status {process.returncode}")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--selection", type=Path, default=HERE / "selection.json", help="mutations to run (JSON)")
    parser.add_argument("--results", type=Path, help="file that results are appended to (JSON lines)")
    parser.add_argument("--before", type=Path, help="results of the same selection to compare with")
    parser.add_argument("--jobs", type=int, default=1, help="mutations at the same time")
    parser.add_argument("--limit", type=float, default=30, help="seconds of processor time per mutation")
    parser.add_argument("--only", nargs="+", metavar="ID", help="run these mutations only")
    parser.add_argument("--show", action="store_true", help="show the output of the tests")
    parser.add_argument("--save", type=Path, help="write a new selection and end")
    parser.add_argument("--count", type=int, default=100, help="mutations of a new selection")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--root", type=Path, default=HERE.parent.parent, help="folder of the package")
    parser.add_argument("--package", default="callboard", help="import name of that folder")
    parser.add_argument("--packages", nargs="+", default=list(PACKAGES), help="folders below it to select from")
    options = parser.parse_args(arguments)
    root = options.root.resolve()
    if options.save:
        selected = select(root, options.packages, options.count, options.seed)
        lines = ",\n".join(json.dumps({"id": each.id, **asdict(each)}) for each in selected)
        options.save.write_text(f"[\n{lines}\n]\n")
        print(f"{len(selected)} mutations in {options.save}")
        return 0

    selection, successors = _read_selection(options.selection)
    done = _read(options.results)
    todo = {
        id: mutation
        for id, mutation in selection.items()
        if id not in done and (not options.only or any(id.startswith(each) for each in options.only))
    }
    check = Check(root, options.package, options.packages, options.limit, options.show, successors)

    def finish(id: str) -> None:
        row = check.run(todo[id])
        with check.lock:
            done[id] = row
            if options.results:
                with options.results.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            mutation = todo[id]
            print(
                f"{len(done):3}/{len(selection)} {id} {row['outcome']:8} {row.get('seconds', 0):>4} s  "
                f"{mutation.path}:{mutation.function} {mutation.operator} `{mutation.code[:60]}`",
                row.get("test", ""),
                flush=True,
            )

    with ThreadPoolExecutor(options.jobs) as pool:
        for _ in pool.map(finish, todo):
            pass
    _summarise(selection, done, options.packages)
    lost = _lost(selection, done, _read(options.before))
    for line in lost:
        print(f"killed before, survived now: {line}")
    return 1 if lost else 0


def _read_selection(file: Path) -> tuple[dict[str, Mutation], dict[str, Mutation]]:
    """Return the mutations of a selection by id, and those that took the place of code which was rewritten."""
    selection, successors = {}, {}
    for row in json.loads(file.read_text()):
        id, now = row.pop("id"), row.pop("now", None)
        selection[id] = Mutation(**row)
        if now is not None:
            successors[id] = replace(selection[id], **now)
    return selection, successors


def _read(file: Path | None) -> dict[str, dict[str, object]]:
    """Return rows by id. A truncated last line is ignored."""
    rows: dict[str, dict[str, object]] = {}
    for line in file.read_text().splitlines() if file is not None and file.exists() else ():
        with suppress(json.JSONDecodeError):
            row = json.loads(line)
            rows[row["id"]] = row
    return rows


def _summarise(selection: dict[str, Mutation], done: dict[str, dict[str, object]], packages: list[str]) -> None:
    counts = {package: Counter[str]() for package in packages}
    for id, row in done.items():
        if id in selection:
            counts[_folder(packages, selection[id].path)][str(row["outcome"])] += 1
    for name, each in (*counts.items(), ("all", sum(counts.values(), Counter()))):
        ran = each.total() - each["gone"]
        killed = sum(each[outcome] for outcome in KILLED)
        print(f"{name:20} {killed}/{ran} killed, {each['survived']} survived, {each['gone']} gone")


def _folder(packages: list[str], path: str) -> str:
    """Return the package of a path: the longest, as `actors/work` and `actors/work/tools` may both be given."""
    return max((each for each in packages if path.startswith(f"{each}/")), key=len)


def _lost(
    selection: dict[str, Mutation], done: dict[str, dict[str, object]], before: dict[str, dict[str, object]]
) -> list[str]:
    return [
        f"{id} {mutation.path}:{mutation.function} {mutation.operator} `{mutation.code}`"
        for id, mutation in selection.items()
        if before.get(id, {}).get("outcome") in KILLED and done.get(id, {}).get("outcome") == "survived"
    ]


if __name__ == "__main__":
    sys.exit(main())
