"""Skills in runs: what models are told of them, what they read, and what they may call meanwhile."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from support.fake_models import Reply
from support.messages import has_message
from support.repository import Repository

from callboard.actors.work.opening_instructions import ListedSkill
from callboard.actors.work.skills import FoundSkills, narrowed, rules
from callboard.protocol.chat import AssistantTurn, ToolCall, ToolTurn, UserTurn
from callboard.protocol.permissions import PermissionRule
from callboard.protocol.skill import read_skill

GRAPH = """
name: a
start: ask
model: fake:model
nodes:
  ask: {{type: llm, prompt: go, {more}, state_updates: {{out: "{{{{output}}}}"}}, next: done}}
  done: {{type: end, output: "{{{{out}}}}"}}
"""


async def test_a_model_reads_a_skill_when_it_wants_it(repository: Repository) -> None:
    directory = repository.skill("brewing", text="Boil it.")
    repository.write(".agents/skills/brewing/references/leaf.md", "Green tea: 80 degrees.")
    repository.agent()
    repository.trust()
    await repository.run(
        Reply(calls=[("skill", {"name": "brewing"})]),
        Reply(calls=[("skill", {"name": "brewing", "file": "references/leaf.md"})]),
        "over",
    )
    first, second = repository.models.requests[1].results[-1], repository.told
    assert "- brewing: What brewing is for." in repository.system
    assert "Boil it." not in repository.system
    assert "Boil it." in first
    assert str(directory) in first
    assert "references/leaf.md" in first
    assert second == "Green tea: 80 degrees."


@pytest.mark.parametrize("file", ["../../../AGENTS.md", "/etc/passwd", "absent.md", "link.md", "a\0b"])
async def test_nothing_outside_of_its_directory_is_read(repository: Repository, file: str) -> None:
    repository.write("AGENTS.md", "outside")
    directory = repository.skill("brewing")
    (directory / "link.md").symlink_to(repository.root / "AGENTS.md")
    repository.agent("workspace_instructions: false")
    repository.trust()
    await repository.run(Reply(calls=[("skill", {"name": "brewing", "file": file})]), "over")
    assert "tool_call_error" in repository.told
    assert "outside" not in repository.told
    assert "root:" not in repository.told


async def test_a_script_that_was_changed_since_trust_keeps_the_skill_from_being_read(repository: Repository) -> None:
    repository.skill("brewing")
    repository.write(".agents/skills/brewing/scripts/boil.sh", "echo hot")
    repository.agent()
    repository.trust()
    repository.write(".agents/skills/brewing/scripts/boil.sh", "curl evil.example")
    await repository.run(Reply(calls=[("skill", {"name": "brewing"})]), "over")
    assert "callboard trust --show" in repository.told
    assert "Do it well" not in repository.told


async def test_skills_of_the_user_need_no_trust_and_those_of_a_trusted_workspace_come_first(
    repository: Repository,
) -> None:
    for place, text in ((".claude/skills", "Of the user."), (".agents/skills", "Of the user, first.")):
        for name in ("one", f"of-{place.split('/')[0][1:]}"):
            directory = repository.home / place / name
            directory.mkdir(parents=True)
            (directory / "SKILL.md").write_text(f"---\nname: {name}\ndescription: d\n---\n{text}\n")
    found = FoundSkills(None, repository.config, os.environ)
    assert {name for name, each in found.by_name.items() if each.origin == "user"} == {"one", "of-agents", "of-claude"}
    assert found.by_name["one"].skill.text == "Of the user, first."
    repository.skill("one", text="Of the workspace.")
    repository.agent()
    repository.trust()
    await repository.run(Reply(calls=[("skill", {"name": "one"})]), "over")
    assert "Of the workspace." in repository.told


async def test_an_agent_has_the_skills_that_its_file_names(repository: Repository) -> None:
    for name in ("one", "two"):
        repository.skill(name)
    repository.trust()
    repository.agent("enabled_skills: [two, callboard-agents, absent]\nskill_instructions: Read these.")
    await repository.run("over")
    assert "Read these.\n- two:" in repository.system
    assert "- callboard-agents:" in repository.system
    assert "one" not in repository.system
    repository.agent("skills_enabled: false")
    await repository.run("over")
    assert repository.models.requests[-1].offered == []
    repository.agent("inject_skill_instructions: false")
    await repository.run("over")
    assert repository.models.requests[-1].offered == ["skill"]
    assert repository.models.requests[-1].system in (None, "")


async def test_settings_turn_them_off_for_all(repository: Repository) -> None:
    repository.skill("one")
    repository.write("AGENTS.md", "Use tabs.")
    repository.agent()
    repository.trust()
    repository.settings(skills_enabled=False, workspace_instructions=False)
    await repository.run("over")
    assert repository.models.requests[-1].offered == []
    assert repository.models.requests[-1].system in (None, "")


async def test_llm_nodes_have_those_that_they_name_and_no_others(repository: Repository) -> None:
    repository.skill("one", text="First.")
    repository.skill("two")
    repository.write("AGENTS.md", "Use tabs.")
    repository.trust()
    directory = repository.config / "agents/a"
    directory.mkdir(parents=True)
    (directory / "graph.yaml").write_text(GRAPH.format(more="skills: [one]"))
    outcome = await repository.run(Reply(calls=[("skill", {"name": "one"})]), "over")
    assert outcome.output == "over", outcome.error
    assert "First." in repository.told
    assert "two" not in repository.system
    assert "tabs" not in repository.system
    (directory / "graph.yaml").write_text(GRAPH.format(more="skills_enabled: true, workspace_instructions: true"))
    await repository.run("over")
    assert "two" in repository.system
    assert "Use tabs." in repository.system
    (directory / "graph.yaml").write_text(GRAPH.format(more="temperature: 0"))
    await repository.run("over")
    assert repository.models.requests[-1].system in (None, "")


async def test_a_skill_that_is_followed_takes_tools_away_until_the_user_says_more(repository: Repository) -> None:
    repository.skill("reading", more="allowed-tools: Read Bash(echo:*)\n")
    repository.write("file.txt", "contents")
    repository.agent("global_tools: [fs_cat, fs_write, execute_command]")
    repository.trust()
    write = ("fs_write", {"path": "made.txt", "contents": "x"})
    await repository.run(
        Reply(calls=[write]),
        Reply(calls=[("skill", {"name": "reading"})]),
        Reply(calls=[("fs_write", {"path": "made-later.txt", "contents": "x"}), ("fs_cat", {"path": "file.txt"})]),
        Reply(calls=[("execute_command", {"command": "echo fine"}), ("execute_command", {"command": "touch no"})]),
        "over",
        yes=True,
    )
    assert (repository.root / "made.txt").exists()
    assert not (repository.root / "made-later.txt").exists()
    assert not (repository.root / "no").exists()
    refused, read, fine, no = repository.models.requests[-1].results[-4:]
    assert has_message(refused, "work.tools.permissions.Permissions.admit")
    assert read == "contents"
    assert "fine" in fine
    assert has_message(no, "work.tools.permissions.Permissions.admit")


def test_narrowing_is_that_of_the_last_skill_that_was_read_in_this_turn() -> None:
    told = [
        ListedSkill(name="a", allows=("Read",)),
        ListedSkill(name="b"),
        ListedSkill(name="c", allows=("Bash(git:*)",)),
    ]

    def call(name: str, id: str) -> AssistantTurn:
        return AssistantTurn("", (ToolCall(id=id, name="skill", arguments={"name": name}),))

    def done(id: str, *, error: bool = False) -> ToolTurn:
        return ToolTurn(call=id, name="skill", content="x", error=error)

    assert narrowed(told, [UserTurn("x")]) == {}
    assert narrowed(told, [UserTurn("x"), call("a", "1"), done("1")]) == rules(("Read",))
    assert narrowed(told, [UserTurn("x"), call("a", "1")]) == {}  # what is called beside it is not narrowed yet
    assert narrowed(told, [UserTurn("x"), call("a", "1"), done("1", error=True)]) == {}
    assert narrowed(told, [UserTurn("x"), call("a", "1"), done("1"), call("b", "2"), done("2")]) == {}
    assert narrowed(told, [UserTurn("x"), call("a", "1"), done("1"), UserTurn("y")]) == {}
    found = rules(("Bash(git add:*)", "Bash(git status)"))
    assert found["*"] == "deny"
    assert found["execute_command"] == PermissionRule(allow=("git add*", "git status"), deny=("*",))
    assert rules(("Bash", "Bash(git:*)"))["execute_command"] == "allow"


def test_what_comes_with_us_is_valid() -> None:
    from callboard.actors.work.library import SKILLS

    files = list(SKILLS.glob("*/SKILL.md"))
    assert files
    for file in files:
        skill, problems = read_skill(file.read_text(), str(file), str(file.parent), strict=True)
        assert skill is not None, problems


async def test_instructions_of_a_directory_are_told_when_a_tool_first_works_there(repository: Repository) -> None:
    repository.write("AGENTS.md", "Use tabs.")
    repository.write("sub/AGENTS.md", "Here: spaces.")
    repository.write("sub/deep/CLAUDE.md", "Deep: nothing.")
    repository.write("sub/deep/file.txt", "contents")
    repository.agent("global_tools: [fs_cat]")
    repository.trust()
    cat = ("fs_cat", {"path": "sub/deep/file.txt"})
    await repository.run(Reply(calls=[cat]), Reply(calls=[cat]), "over")
    first, second = repository.models.requests[-1].results
    assert first.startswith("contents\n\n[sub/deep/CLAUDE.md has instructions")
    assert first.index("Deep: nothing.") < first.index("Here: spaces.")
    assert "Use tabs." not in first
    assert second == "contents"
    repository.agent("global_tools: [fs_cat]\nworkspace_instructions: false")
    await repository.run(Reply(calls=[cat]), "over")
    assert repository.told == "contents"


async def test_in_a_directory_further_down_the_nearest_file_comes_first(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.write("AGENTS.md", "The whole.")
    repository.write("sub/AGENTS.md", "The part.")
    (repository.config / "AGENTS.md").write_text("Of the user.")
    repository.agent()
    repository.trust()
    monkeypatch.chdir(repository.root / "sub")
    await repository.run("over")
    system = repository.system
    assert system.index("The part.") < system.index("The whole.") < system.index("Of the user.")


async def test_scripts_are_run_by_path_with_the_tools_that_there_are(repository: Repository) -> None:
    directory = repository.skill("brewing")
    script = repository.write(".agents/skills/brewing/scripts/boil.sh", "#!/bin/sh\necho hot\n", executable=True)
    assert script.stat().st_mode & stat.S_IXUSR
    repository.agent("global_tools: [execute_command]")
    repository.trust()
    await repository.run(
        Reply(calls=[("execute_command", {"command": str(directory / "scripts/boil.sh")})]), "over", yes=True
    )
    assert "hot" in repository.told
    assert Path(directory).is_dir()
