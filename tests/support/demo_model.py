"""Scripted model of the coding agents of `callboard demo`. The cassette in examples/demo is recorded from it.

Each reply depends on the agent (its system prompt) and on the tool results in the request, as with a real model.
"""

from __future__ import annotations

import json
import re

from support.fake_models import Reply, Request

OLD = "    return ordered[middle]\n"
NEW = """\
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
"""
TESTS = ("execute_command", {"command": "python3 -m unittest"})


def answer(request: Request) -> Reply:
    """The reply to a request of one of the agents."""
    agent = next(agent for words, agent in _AGENTS.items() if words in request.system)
    reply = agent(request)
    said = len(reply.text) + sum(len(json.dumps(arguments)) + len(name) for name, arguments in reply.calls)
    # As providers count: about four characters a token.
    reply.input_tokens, reply.output_tokens = len(request.body) // 4, max(8, said // 4)
    return reply


def _lead(request: Request) -> Reply:
    results = request.results
    children = list(dict.fromkeys(re.findall(r"agent_(?:reader|tester)_[0-9a-f]{8}", " ".join(results))))
    if not results:
        return Reply(
            text="Two of them look at it first: one at the code, one at the tests.",
            calls=[
                ("agent__spawn", {"agent": "reader", "prompt": "Find `median`. What does it do with 4 values?"}),
                ("agent__spawn", {"agent": "tester", "prompt": "Run the tests. Which fail, and with what message?"}),
            ],
        )
    if len(results) == 2:
        return Reply(calls=[("agent__collect", {"id": id}) for id in children])
    if not any("fs_edit" in called for called in _called(request)):
        text = "Both point at stats.py: of an even number of values it takes the upper middle one. I correct that."
        edit = {"path": "stats.py", "edits": [{"old_string": OLD, "new_string": NEW}]}
        return Reply(text=text, calls=[("fs_edit", edit)])
    if _called(request)[-1] == "fs_edit":
        return Reply(calls=[TESTS])
    return Reply(
        text="`median` returned the upper of the two middle values when their number was even. My change makes it "
        "return their mean. Whether the tests pass is for the next step to say."
    )


def _reader(request: Request) -> Reply:
    match len(request.results):
        case 0:
            return Reply(calls=[("fs_grep", {"pattern": "def median", "path": "."})])
        case 1:
            return Reply(calls=[("fs_read", {"path": "stats.py"})])
    return Reply(
        text="stats.py, line 18: `median` returns `ordered[middle]` for every list. Of an even number of values it "
        "should return the mean of `ordered[middle - 1]` and `ordered[middle]`."
    )


def _tester(request: Request) -> Reply:
    if not request.results:
        return Reply(calls=[TESTS])
    return Reply(
        text="4 tests ran, 1 failed: test_median_of_an_even_number_of_values expected 2.5, and `median([4, 1, 3, 2])` "
        "returned 3."
    )


_AGENTS = {
    "You repair the repository": _lead,
    "You find things in the code": _reader,
    "You run the tests of the repository": _tester,
}


def _called(request: Request) -> list[str]:
    """The names of the tools that were called so far, in order."""
    return [
        call["function"]["name"] for message in request.json["messages"] for call in message.get("tool_calls") or ()
    ]
