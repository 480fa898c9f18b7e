"""Loki's command line: agents and macros (sections 6 and 7 of the plan, 4 and 6 of the checklist)."""

from __future__ import annotations

from qa.home import QaHome
from support.fake_models import Reply


def test_p6_1_c4_1_c4_3_an_agent_answers_and_its_tools_run(qa_home: QaHome) -> None:
    qa_home.says(Reply(calls=[("drawer", {"label": "ink"})]), "There is ink.")
    ended = qa_home.loki("-a", "clerk", "What is in the drawer?")
    assert "There is ink." in ended.shown
    assert "in the drawer for a colleague: ink" in qa_home.last().results[0]
    assert {"drawer", "broken", "get_current_time"} <= set(qa_home.last().offered)


def test_p6_2_an_agent_has_sessions_of_its_own(qa_home: QaHome) -> None:
    for prompt in ("one", "two"):
        assert qa_home.loki("-a", "clerk", "-s", "test", prompt).code == 0
    assert [message["content"] for message in qa_home.last().json["messages"][1:]] == ["one", "You said: one", "two"]
    assert qa_home.loki("--list-sessions", "-a", "clerk").shown.split() == ["test"]


def test_p6_3_a_variable_of_an_agent_is_given(qa_home: QaHome) -> None:
    qa_home.says(Reply(calls=[("drawer", {})]), "done")
    qa_home.loki("-a", "clerk", "--agent-variable", "who", "the king", "hello")
    assert "you work for the king" in qa_home.last().system
    assert "for the king: pencils" in qa_home.last().results[0]


def test_p6_4_c4_2_the_servers_of_an_agent_start(qa_home: QaHome) -> None:
    qa_home.says(Reply(calls=[("books__add", {"a": 20, "b": 22})]), "It is 42.")
    ended = qa_home.loki("-a", "librarian", "add them")
    assert "It is 42." in ended.shown
    assert qa_home.last().results == ["42"]


def test_p7_1_c6_1_a_macro_is_played(qa_home: QaHome) -> None:
    ended = qa_home.loki("--macro", "greet")
    assert "You said: Say hello to Ada." in ended.shown
    assert "You said: Say hello to Grace Hopper." in qa_home.loki("--macro", "greet", "Grace", "Hopper").shown


def test_p13_13_c11_12_an_agents_tools_file_may_change_its_kind(qa_home: QaHome) -> None:
    agent = qa_home.config / "agents" / "sorter"
    agent.mkdir()
    (agent / "config.yaml").write_text("name: sorter\ninstructions: You sort.\n")
    (agent / "tools.ts").write_text("/** By TypeScript. */\nexport function by_ts(): string { return 'ts' }\n")
    qa_home.loki("-a", "sorter", "hello")
    assert "by_ts" in qa_home.last().offered
    (agent / "tools.ts").unlink()
    (agent / "tools.sh").write_text(BASH)
    qa_home.loki("-a", "sorter", "hello")
    assert "by_sh" in qa_home.last().offered
    assert "by_ts" not in qa_home.last().offered


def test_i2_of_global_tools_the_bash_file_counts_and_two_files_of_an_agent_are_refused(qa_home: QaHome) -> None:
    tools = qa_home.config / "functions" / "tools"
    tools.mkdir(parents=True)
    (tools / "twice.py").write_text('def run():\n    """By Python."""\n    return "py"\n')
    (tools / "twice.sh").write_text('# @describe By bash.\nmain() { :; }\neval "$(argc --argc-eval "$0" "$@")"\n')
    agent = qa_home.config / "agents" / "torn"
    agent.mkdir()
    (agent / "config.yaml").write_text("name: torn\ninstructions: You are torn.\nglobal_tools: [twice]\n")
    qa_home.loki("-a", "torn", "hello")
    assert next(tool["function"]["description"] for tool in qa_home.last().json["tools"]) == "By bash."
    (agent / "tools.py").write_text('def by_py():\n    """By Python."""\n    return "py"\n')
    (agent / "tools.sh").write_text(BASH)
    refused = qa_home.loki("-a", "torn", "hello")
    assert refused.code == 2
    assert "tools.sh" in refused.shown
    assert "tools.py" in refused.shown


BASH = '# @cmd By bash.\nby_sh() { :; }\neval "$(argc --argc-eval "$0" "$@")"\n'
