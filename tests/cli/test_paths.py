"""Paths of actors and calls, in the words people know them by."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.cli.render import paths
from callboard.cli.render.brief import call_in_short

KID = "/run-1/boss/children/agent_kid_1/kid"
DEEP = f"{KID}/children/agent_sub_2/sub"


@pytest.mark.parametrize(
    ("question", "shown"),
    [
        ({"actor": "/run-1/boss/user__ask"}, "boss"),
        ({"actor": f"{KID}/user__ask#2"}, "agent_kid_1"),
        ({"actor": f"{DEEP}/user__confirm"}, "agent_kid_1 > agent_sub_2"),
        ({"actor": f"{DEEP}/fs_rm#3", "permission": "fs_rm"}, "agent_kid_1 > agent_sub_2"),
        ({"actor": f"{KID}/forget"}, "agent_kid_1 > forget"),
        ({"actor": "/run-1/g/gate#2", "node": "gate"}, "gate"),
        ({"actor": f"{KID}/gate", "node": "gate"}, "agent_kid_1 > gate"),
        ({"actor": "/call-1/fs_rm", "permission": "fs_rm"}, ""),
        ({"actor": f"{KID}/s__ask/question#2"}, "agent_kid_1 > s__ask"),
        ({"actor": "/call-1/s__ask/question"}, "s__ask"),
        ({"actor": "/run-1/question"}, "question"),
        ({"actor": "/run-1/network", "permission": "execute_command"}, "the sandbox"),
        ({"actor": "/run-1/network"}, "network"),
        ({"node": "gate"}, "gate"),
        ({}, ""),
    ],
)
def test_who_asks_is_told_by_the_path_of_agents(question: dict[str, object], shown: str) -> None:
    assert paths.asker(question) == shown


@pytest.mark.parametrize(
    ("actor", "shown"),
    [
        ("/run-1/boss/fs_ls", ""),
        ("/run-1/g/plan/fs_ls", "plan"),
        (f"{KID}/fs_ls", "agent_kid_1"),
        (f"{DEEP}/fs_ls#2", "agent_sub_2"),
        (f"{DEEP}/plan/fs_ls", "agent_sub_2 > plan"),
        ("/call-1/fs_ls", ""),
        ("", ""),
    ],
)
def test_who_calls_is_told_unless_it_is_the_agent_that_was_started(actor: str, shown: str) -> None:
    assert paths.caller(actor) == shown


@pytest.mark.parametrize(("actor", "id"), [(KID, "agent_kid_1"), (f"{KID}/fs_ls", ""), ("/run-1/boss", ""), ("", "")])
def test_the_actor_of_a_child_is_known_by_its_id(actor: str, id: str) -> None:
    assert paths.child(actor) == id


def test_a_path_of_many_agents_leaves_out_its_middle() -> None:
    deep = "/run-1/a" + "".join(f"/children/agent_{n}/a" for n in range(9)) + "/user__ask"
    assert paths.asker({"actor": deep}) == "agent_0 > ... > agent_7 > agent_8"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"path":"src/a.py","offset":10}', "fs path=src/a.py offset=10"),
        ('{"command":"git status"}', 'fs command="git status"'),
        ('{"names":["a","b"],"deep":{"x":null},"empty":""}', 'fs names=["a", "b"] deep={"x": null} empty=""'),
        ('{"text":"one\\ntwo"}', 'fs text="one two"'),
        ("{}", "fs"),
        ("", "fs"),
        ('{"cut [... 9 characters left out ...]', 'fs {"cut [... 9 characters left out ...]'),
        ("[1]", "fs [1]"),
    ],
)
def test_a_call_is_its_name_and_its_arguments(arguments: str, shown: str) -> None:
    assert call_in_short("fs", arguments) == shown


@given(st.text(), st.text() | st.dictionaries(st.text(), st.text() | st.lists(st.integers())).map(json.dumps))
def test_a_call_is_one_harmless_line_whatever_a_model_wrote(tool: str, arguments: str) -> None:
    line = call_in_short(tool, arguments)
    assert len(line) <= 141
    assert line.isprintable() or not any(ord(each) < 0x20 or 0x7F <= ord(each) < 0xA0 for each in line)


@given(st.text(st.sampled_from("/a#children\x1b"), max_size=60))
def test_any_path_can_be_told(actor: str) -> None:
    for shown in (paths.asker({"actor": actor}), paths.caller(actor), paths.child(actor), paths.name(actor)):
        assert "\x1b" not in shown
