"""Every recorded run of DevAll's own engine, played again: tests/fixtures/workflows/README.md."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.workflow_driver import Seen, WorkflowDriver, read, structure

from callboard.actors.engine.workflow.machine.machine import MachineResult
from callboard.actors.engine.workflow.messages import Message
from callboard.protocol.errors import CallboardError

RECORDED = Path(__file__).parents[4] / "fixtures" / "workflows" / "devall.json"
CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in json.loads(RECORDED.read_text())}


def shown(message: Message) -> list[Any]:
    return [message.role, message.source, message.text, message.keep]


class Played:
    """One case, read and run."""

    def __init__(self, case: dict[str, Any], compat: str) -> None:
        self.error: CallboardError | None = None
        self.result = MachineResult()
        self.inputs: list[Seen] = []
        found, self.problems = read(case["yaml"], compat)
        if found is None:
            return
        workflow_driver = WorkflowDriver(answers=case["human_answers"])
        try:
            self.result = workflow_driver.run(structure(found), [Message(role="user", content=case["task_prompt"])])
            self.error = self.result.error
        except CallboardError as error:
            self.error = error
        self.inputs = workflow_driver.inputs

    @property
    def failure(self) -> str:
        """What a user is told; empty if all went well."""
        errors = [str(problem) for problem in self.problems if problem.severity == "error"]
        return "\n".join(errors) or str(self.error or "")


def compared(case: dict[str, Any], played: Played) -> dict[str, tuple[Any, Any]]:
    """Where a run differs from the record: what we did, and what is recorded."""
    expected = case["expected"]
    result = played.result
    ours: dict[str, Any] = {
        "final": result.final,
        "final_messages": [[message.role, message.text] for message in result.final_messages],
        "leftover": {id: [shown(message) for message in queue] for id, queue in result.leftover.items()},
        "order": result.order,
        "inputs": [[id, [shown(message) for message in messages]] for id, messages in played.inputs],
    }
    theirs = {key: expected[key] for key in ours}
    if case.get("truncated"):
        assert len(ours["order"]) == expected["order_len"]
        for key in ("order", "inputs", "final_messages"):
            ours[key] = ours[key][: len(theirs[key])]
    if not case["stable_over_3_runs"]:
        for key in ("order", "inputs"):
            ours[key], theirs[key] = (Counter(map(str, each[key])) for each in (ours, theirs))
    return {key: (ours[key], theirs[key]) for key in ours if ours[key] != theirs[key]}


@pytest.mark.parametrize("name", CASES)
def test_with_compat_devall_a_recorded_run_is_repeated(name: str) -> None:
    case = CASES[name]
    played = Played(case, "devall")
    assert bool(played.failure) == (case["expected"]["error"] is not None)
    if not played.failure:
        assert compared(case, played) == {}
    elif played.error is not None:  # it was right to read, so it has to have come as far
        assert not {"order", "inputs"} & compared(case, played).keys()


class Otherwise(NamedTuple):
    """What `standard` does where the record does something else, and why."""

    because: str
    final: str | None = None
    fails: str | None = None


MENDED = "the program's trap is mended"
GUIDE = "the guide teaches it"

DIFFERENT = {
    "B02 no start": Otherwise(f"{GUIDE}: the only source is where to start", "TASK"),
    "E02 unknown function condition defaults true": Otherwise(MENDED, fails="no condition function 'no_such_fn'"),
    "E07 keyword all ignored -> error": Otherwise(f"{GUIDE}: `all`", ""),
    "E08 type regex condition": Otherwise(f"{GUIDE}: conditions of type regex", ""),
    "E13 parallel edges same pair merged (last wins)": Otherwise(f"{MENDED}: two edges of one pair both count", "foo"),
    "E23 process unknown type": Otherwise(f"{GUIDE}: templates", "x abc"),
    "E24 processor key ignored": Otherwise(f"{GUIDE}: `processor`", "x abc"),
    "L04 pure infinite loop stops at 100": Otherwise(f"{MENDED}: a result is not lost in silence", fails="100 times"),
    "L16 node id contains node_ in cyclic graph": Otherwise(f"{MENDED}: an id may contain anything", "b"),
    "D16 guide-style split_type ignored": Otherwise(f"{GUIDE}: `split_type`", "M<user:2>"),
    "N01 literal role system": Otherwise(f"{GUIDE}: literals of role system", "x"),
    "N03 python_runner type": Otherwise(f"{GUIDE}: `python_runner`", final=None),
    "N12 human node memory ignored + preview": Otherwise(
        f"{GUIDE}: memories of people", fails="the graph has no memory store `none`"
    ),
    "A13 memory without config": Otherwise(f"{GUIDE}: its stores have no `config`", "A<user:TASK>"),
    "A14 bad retrieve_stage": Otherwise(f"{GUIDE}: stage `post_gen`", "A<user:TASK>"),
    "Q06 duplicate tool names": Otherwise(f"{MENDED}: a failed agent fails the run", fails="Duplicate tool name"),
}
"""Every recorded run that `standard` does not repeat."""


@pytest.mark.parametrize("name", [name for name in CASES if name not in DIFFERENT])
def test_by_default_a_recorded_run_is_repeated_too(name: str) -> None:
    case = CASES[name]
    played = Played(case, "standard")
    assert bool(played.failure) == (case["expected"]["error"] is not None)
    if not played.failure:
        assert compared(case, played) == {}


@pytest.mark.parametrize("name", DIFFERENT)
def test_by_default_what_is_mended_or_taught_is_done_otherwise(name: str) -> None:
    otherwise = DIFFERENT[name]
    played = Played(CASES[name], "standard")
    if otherwise.fails is not None:
        assert otherwise.fails in played.failure
        return
    assert not played.failure
    if otherwise.final is not None:
        assert played.result.final == otherwise.final


@pytest.mark.parametrize("name", DIFFERENT)
def test_the_list_of_differences_holds_nothing_that_is_the_same(name: str) -> None:
    case = CASES[name]
    played = Played(case, "standard")
    failed = case["expected"]["error"] is not None
    assert bool(played.failure) != failed or compared(case, played) != {}


def test_each_of_them_stands_in_a_row_of_the_page_on_compatibility() -> None:
    page = (Path(__file__).parents[5] / "docs" / "compatibility.md").read_text()
    rows = [line for line in page[page.index("## DevAll") :].splitlines() if line.count("|") == 7]
    told = {id for row in rows for id in re.findall(r"\b[A-Z]\d\d\b", row.split("|")[6])}
    assert told == {name.split()[0] for name in DIFFERENT}


def test_what_a_failed_run_has_done_until_then_is_kept() -> None:
    """X01: the person in the subgraph can't be asked, and the other node of the layer is let finish."""
    case = CASES["X01 node exception fails run; layer mates finish"]
    played = Played(case, "devall")
    assert played.result.order == case["expected"]["order"]
    assert [message.text for message in played.result.outputs["C"]] == ["c"]
