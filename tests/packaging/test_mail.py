"""What has happened to an actor comes as a message: in the layers where actors decide, no other way passes results on.

Ways around the mailbox are found in the code: tasks that are begun outside the tree, and things that wake another task
(events, channels, parking lots, callbacks on an actor's end, rescheduling). Each that is there is listed below, with
what it does that is no result of an actor. A new one fails the test: tell the actor a message, or say here why not.
"""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from .import_graph import ROOT

AROUND = {
    "start_soon",  # a task without an actor
    "Event",
    "Condition",
    "ParkingLot",
    "open_memory_channel",
    "on_end",  # a callback
    "reschedule",
    "put_own",  # past `tell`, so past its counting
}

KERNEL = {
    "ref, actor, mailbox, scheduler": "they are how mail, replies and ends get to their task",
    "escalation": "puts a question into the mailbox of the root",
    "bus": "events are for those who look on; nothing that an actor decides follows from one",
    "introspection": "lets paused actors go on",
    "pool": "a lease is a lock: those who wait for it are woken, and get nothing told",
    "process, pipes, guardian_link": "subprocesses: pipes, exits, answers of reapers",
    "event_loops": "results that cross between event loops, of which one has no mailbox",
    "root": "`hurry`, which ends graces",
    "journal/journal": "the thread that writes wakes who waits for the disk, and tells nothing",
}
"""Modules of `supervisors`, and why they may."""

ALLOWED = {
    "engine/driver": "puts what work has come to into the mailbox, and what follows from the end of its actor",
    "engine/workflow/nodes/python": "watches over a process while it waits for it",
    "work/agent/children": "tells the conversation that a child has ended",
    "work/tools/builtin/commands": "watches over a process while it waits for it",
    "work/tools/functions": "calls of functions wait for a place among the threads",
    "work/tools/files/call": "answers what a script asks while it waits for its process",
    "work/spending/accounts": "an account is a lock: requests that wait for room are woken with their reservation",
    "work/spending/ledger": "requests wait for the transaction that writes theirs; what it says is in the accounts",
    "work/knowledge/embed/remote": "requests of one call, side by side",
    "work/knowledge/sources/web": "requests of one call, side by side",
    "work/sandbox/egress": "bytes on their way out of a sandbox, and whether their sender is still there",
    "work/mcp/tools/tool_list": "requests of one call, side by side",
    "work/mcp/pool": "starts of servers, side by side; what other processes ask",
    "work/mcp/client": "JSON-RPC: a response wakes the call that waits for it, whose end is the message",
    "work/mcp/links": "bytes and frames on their way to and from another process",
    "runs/batch/batch": "begins the next task as one ends, whose result is a message",
    "runs/rerun/cases": "cases, side by side; each is a run, whose outcome is the result",
    "runs/rerun/replay": "the task that hands out what a replay gets from outside, in the place of the world",
    "runs/rerun/replaying/sequencer": "it is in the place of the world: it wakes what waits for an effect",
    "runs/runtime": "calls wait until a tenant is open; its actor waits until it is to be closed",
    "runs/sessions": "a session gives out turns, and is forgotten when its actor ends",
}
"""Modules and packages of `actors`, and why they may."""


def ways(path: str) -> dict[str, Counter[str]]:
    """By module below this directory: which ways around the mailbox its code takes, and how often."""
    found: dict[str, Counter[str]] = {}
    for file in sorted((ROOT / path).rglob("*.py")):
        if "library/agents" in str(file):  # programs for agents: they run as processes of their own
            continue
        nodes = list(ast.walk(ast.parse(file.read_text())))
        calls = [node.func for node in nodes if isinstance(node, ast.Call)]
        calls += [node.value for node in nodes if isinstance(node, ast.keyword) and node.arg == "default_factory"]
        names = [call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls]
        names += [node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg in AROUND]
        if taken := Counter(name for name in names if name in AROUND):
            found[str(file.relative_to(ROOT / path).with_suffix(""))] = taken
    return found


def test_in_the_kernel_only_what_carries_mail_wakes_tasks() -> None:
    allowed = {module for modules in KERNEL for module in modules.split(", ")}
    found = ways("supervisors")
    assert found.keys() - allowed == set(), "tell a message, or say in KERNEL why not"
    assert allowed - found.keys() == set(), "these need no leave any more"


@pytest.mark.parametrize("layer", ["engine", "work", "runs"])
def test_results_are_handed_over_by_mail_alone(layer: str) -> None:
    found = {f"{layer}/{module}": taken for module, taken in ways(f"actors/{layer}").items()}
    allowed = {place for place in ALLOWED if place.startswith(f"{layer}/")}
    used = {module: [place for place in allowed if f"{module}/".startswith(f"{place}/")] for module in found}
    assert {module: dict(found[module]) for module, places in used.items() if not places} == {}, (
        "tell a message, or say in ALLOWED why not"
    )
    assert allowed - {place for places in used.values() for place in places} == set(), "these need no leave any more"


def test_what_goes_around_the_mailbox_is_found() -> None:
    """The search finds what it is for: in the one module that wakes tasks in each of these ways."""
    assert ways("supervisors")["mailbox"].keys() == {"reschedule"}
    assert ways("supervisors")["root"].keys() == {"Event"}
    assert ways("actors/engine")["driver"].keys() >= {"on_end", "put_own"}
