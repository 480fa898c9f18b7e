"""Loki's command line: agents and macros (sections 6 and 7 of the plan, 4 and 6 of the checklist)."""

from __future__ import annotations

from qa.home import House
from support.fake_models import Reply


def test_p6_1_c4_1_c4_3_an_agent_answers_and_its_tools_run(house: House) -> None:
    house.says(Reply(calls=[("drawer", {"label": "ink"})]), "There is ink.")
    ended = house.loki("-a", "clerk", "What is in the drawer?")
    assert "There is ink." in ended.shown
    assert "in the drawer for a colleague: ink" in house.last().results[0]
    assert {"drawer", "broken", "get_current_time"} <= set(house.last().offered)


def test_p6_2_an_agent_has_sessions_of_its_own(house: House) -> None:
    for prompt in ("one", "two"):
        assert house.loki("-a", "clerk", "-s", "test", prompt).code == 0
    assert [message["content"] for message in house.last().json["messages"][1:]] == ["one", "You said: one", "two"]
    assert house.loki("--list-sessions", "-a", "clerk").shown.split() == ["test"]


def test_p6_3_a_variable_of_an_agent_is_given(house: House) -> None:
    house.says(Reply(calls=[("drawer", {})]), "done")
    house.loki("-a", "clerk", "--agent-variable", "who", "the king", "hello")
    assert "you work for the king" in house.last().system
    assert "for the king: pencils" in house.last().results[0]


def test_p6_4_c4_2_the_servers_of_an_agent_start(house: House) -> None:
    house.says(Reply(calls=[("books__add", {"a": 20, "b": 22})]), "It is 42.")
    ended = house.loki("-a", "librarian", "add them")
    assert "It is 42." in ended.shown
    assert house.last().results == ["42"]


def test_p7_1_c6_1_a_macro_is_played(house: House) -> None:
    ended = house.loki("--macro", "greet")
    assert "You said: Say hello to Ada." in ended.shown
    assert "You said: Say hello to Grace Hopper." in house.loki("--macro", "greet", "Grace", "Hopper").shown


def test_p13_13_c11_12_an_agents_tools_file_may_change_its_kind(house: House) -> None:
    agent = house.config / "agents" / "sorter"
    agent.mkdir()
    (agent / "config.yaml").write_text("name: sorter\ninstructions: You sort.\n")
    (agent / "tools.ts").write_text("/** By TypeScript. */\nexport function by_ts(): string { return 'ts' }\n")
    house.loki("-a", "sorter", "hello")
    assert "by_ts" in house.last().offered
    (agent / "tools.ts").unlink()
    (agent / "tools.sh").write_text(BASH)
    house.loki("-a", "sorter", "hello")
    assert "by_sh" in house.last().offered
    assert "by_ts" not in house.last().offered


def test_i2_of_global_tools_the_bash_file_counts_and_two_files_of_an_agent_are_refused(house: House) -> None:
    tools = house.config / "functions" / "tools"
    tools.mkdir(parents=True)
    (tools / "twice.py").write_text('def run():\n    """By Python."""\n    return "py"\n')
    (tools / "twice.sh").write_text('# @describe By bash.\nmain() { :; }\neval "$(argc --argc-eval "$0" "$@")"\n')
    agent = house.config / "agents" / "torn"
    agent.mkdir()
    (agent / "config.yaml").write_text("name: torn\ninstructions: You are torn.\nglobal_tools: [twice]\n")
    house.loki("-a", "torn", "hello")
    assert next(tool["function"]["description"] for tool in house.last().json["tools"]) == "By bash."
    (agent / "tools.py").write_text('def by_py():\n    """By Python."""\n    return "py"\n')
    (agent / "tools.sh").write_text(BASH)
    refused = house.loki("-a", "torn", "hello")
    assert refused.code == 2
    assert "tools.sh" in refused.shown
    assert "tools.py" in refused.shown


BASH = '# @cmd By bash.\nby_sh() { :; }\neval "$(argc --argc-eval "$0" "$@")"\n'
