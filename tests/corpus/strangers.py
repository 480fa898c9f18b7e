"""The files of other projects that Callboard should run unchanged, and what came of running them.

The files are not ours, so they are not in this repository. `CALLBOARD_CORPUS` names a directory that has them:

    loki-0.4.0   a checkout of Loki v0.4.0
    coyote       a checkout of its successor
    chatdev      a checkout of ChatDev
    seeds        the founding documents, as text files

Each is a family. What came of each file is recorded in `outcomes/<family>.json`; docs/corpus.md is made of these by
`make docs`. A test is written so:

    @pytest.mark.parametrize(("file", "what"), attempts("coyote", find_tools, what="call"))
    async def test_its_tools_work(file: str, what: str) -> None:
        seen = await called(corpus("coyote") / file)
        check("coyote", file, what, seen)

Without the corpus every recorded attempt is one skipped test. With `CALLBOARD_CORPUS_RECORD=1` what is seen is
recorded in place of being compared (look at the difference before you commit it).
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

import pytest

Family = Literal["loki-0.4.0", "coyote", "chatdev", "seeds"]
Status = Literal["works", "needs", "cannot"]

FAMILIES: tuple[Family, ...] = ("loki-0.4.0", "coyote", "chatdev", "seeds")
OUTCOMES = Path(__file__).parent / "outcomes"


class Seen(NamedTuple):
    """What came of an attempt.

    Attributes:
        status: it `works`; it `needs` something that a test can't give it; it `cannot` work.
        why: what it needs ("the program jira", "the network", "a key of Perplexity"), or why it can't work.
    """

    status: Status
    why: str = ""


WORKS = Seen("works")


def needs(what: str) -> Seen:
    """It needs something that this machine or a test has not."""
    return Seen("needs", what)


def cannot(why: str) -> Seen:
    """It doesn't work, and why."""
    return Seen("cannot", why)


class Outcome(NamedTuple):
    """One recorded attempt.

    Attributes:
        file: relative to the family's directory.
        what: was tried: a kind in one word ("validate", "run", "call"), and what the kind has to be told with.
    """

    file: str
    what: str
    status: Status
    why: str = ""

    @property
    def kind(self) -> str:
        """The first word of `what`."""
        return self.what.partition(" ")[0]


def corpus(family: Family) -> Path:
    """The directory of a family; skips the test if it is not there."""
    directory = root_of(family)
    if directory is None:
        pytest.skip(f"CALLBOARD_CORPUS names no directory with {family}")
    return directory


def recorded(family: Family) -> list[Outcome]:
    """Everything that is recorded of a family."""
    file = OUTCOMES / f"{family}.json"
    return [Outcome(**entry) for entry in json.loads(file.read_text(encoding="utf-8"))] if file.exists() else []


def attempts(family: Family, find: Callable[[Path], Iterable[tuple[str, str]]], *, what: str) -> list[tuple[str, str]]:
    """Every attempt of a kind as (file, what): those recorded, and those that `find` sees in the corpus."""
    directory = root_of(family)
    found = set() if directory is None else set(find(directory))
    assert all(tried.split(" ")[0] == what for _file, tried in found), f"an attempt here begins with {what!r}"
    if not (_recording() and found):
        found |= {(outcome.file, outcome.what) for outcome in recorded(family) if outcome.kind == what}
    return sorted(found)


def check(family: Family, file: str, what: str, seen: Seen) -> None:
    """Compare what was seen with what is recorded, or record it.

    A machine that lacks what the recording one had skips; one that has more than that may see it work.
    """
    if _recording():
        _record(family, Outcome(file, what, *seen))
        return
    told = next((old for old in recorded(family) if (old.file, old.what) == (file, what)), None)
    if told is None:
        _fail(f"{family}: nothing is recorded of '{what}' of {file}; seen: {seen}")
    if (told.status, seen.status) == ("works", "needs"):
        pytest.skip(f"needs {seen.why}")
    if (told.status, told.why) != seen and (told.status, seen.status) != ("needs", "works"):
        _fail(f"{family}: '{what}' of {file}\n  recorded: {told.status} {told.why}\n  seen: {seen.status} {seen.why}")


def _fail(text: str) -> NoReturn:
    pytest.fail(text + "\n  (record anew with CALLBOARD_CORPUS_RECORD=1 if that is as it should be)", pytrace=False)


def root_of(family: Family) -> Path | None:
    """Where the files of a family are, if they are here."""
    base = os.environ.get("CALLBOARD_CORPUS", "")
    directory = Path(base, family)
    return directory if base and directory.is_dir() else None


def _recording() -> bool:
    return bool(os.environ.get("CALLBOARD_CORPUS_RECORD"))


def _record(family: Family, new: Outcome) -> None:
    """Put it in its place. Several processes may record at once."""
    file = OUTCOMES / f"{family}.json"
    with (Path(tempfile.gettempdir()) / f"callboard-corpus-{family}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = [old for old in recorded(family) if (old.file, old.what) != (new.file, new.what)]
        entries: list[dict[str, Any]] = [outcome._asdict() for outcome in sorted([*kept, new])]
        lines = ",\n".join("  " + json.dumps(entry, ensure_ascii=False) for entry in entries)
        file.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
