"""Skills: an agent is told of them, reads them when it wants to, and nothing beside them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fake_models import Reply
from support.messages import has_message
from support.workflow_agents import Agents

from callboard.actors.work.skills import FoundSkills

ONE = """
graph:
  start: [A]
  nodes:
    - {id: A, type: agent, config: {{fake}, name: m, role: R, skills: {enabled: true%s}}}
"""


@pytest.fixture
def skills(agents: Agents) -> Path:
    root = agents.home / ".agents" / "skills"
    for name, what in (("baking", "Makes cakes."), ("sailing", "Sails\n  far.")):
        (root / name).mkdir(parents=True)
        (root / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {what}\n---\nHow to do {name}.\n")
    (root / "baking" / "oven.txt").write_text("hot")
    (root / "secret.txt").write_text("secret")
    return root


async def test_an_agent_is_told_of_its_skills_and_reads_them(agents: Agents, skills: Path) -> None:
    calls = [
        ("skill", {"name": "baking"}),
        ("skill", {"name": "baking", "file": "oven.txt"}),
        ("skill", {"name": "baking", "file": "../secret.txt"}),
        ("skill", {"name": "baking", "file": "nothing"}),
        ("skill", {"name": "flying"}),
    ]
    agents.models.script(Reply(calls=calls), "baked")
    result = await agents.run(ONE % "")
    assert (result.error, result.output) == (None, "baked")
    first, second = agents.models.requests
    assert first.system.startswith("R\n\n## Skills\n")
    assert first.system.endswith("\n- baking: Makes cakes.\n- sailing: Sails far.")
    assert first.offered == ["skill"]
    told = second.results
    assert told[0].endswith("\n\nHow to do baking.")
    assert told[1] == "hot"
    assert has_message(told[2], "work.skills.FoundSkills.file", path="../secret.txt", name="baking")
    assert has_message(told[3], "work.skills.FoundSkills.file.2", path="nothing")
    assert "invalid arguments" in told[4]


async def test_only_what_is_allowed_is_told(agents: Agents, skills: Path) -> None:
    await agents.run(ONE % ", allow: [{name: sailing}]")
    assert "baking" not in agents.models.requests[0].system


async def test_no_skills_are_told_where_they_are_not_enabled(agents: Agents, skills: Path) -> None:
    await agents.run((ONE % "").replace("enabled: true", "enabled: false"))
    (request,) = agents.models.requests
    assert (request.system, request.offered) == ("R", [])


async def test_a_skill_that_is_not_there_or_has_no_head_is_a_mistake(agents: Agents, skills: Path) -> None:
    result = await agents.run(ONE % ", allow: [bakeing]")
    assert "`skills` allows 'bakeing': did you mean 'baking'?" in str(result.error)
    (skills / "baking" / "SKILL.md").write_text("How to bake.")
    result = await agents.run(ONE % "")
    assert has_message(str(result.error), "protocol.skill.read_skill.4")
    (skills / "baking" / "SKILL.md").write_text("---\nname: cooking\ndescription: x\n---\n")


async def test_a_skill_of_another_name_than_its_directory_is_known_by_the_directory(
    agents: Agents, skills: Path
) -> None:
    (skills / "baking" / "SKILL.md").write_text("---\nname: cooking\ndescription: Cooks.\n---\n")
    result = await agents.run(ONE % "")
    assert result.error is None
    assert "- baking: Cooks." in agents.models.requests[0].system
    (problem,) = (
        FoundSkills(None, agents.home, {"HOME": str(agents.home)}, near=(agents.home,)).by_name["baking"].problems
    )
    assert (problem.severity, problem.code, problem.key) == ("warning", "bad_name", "name")
    assert has_message(problem.message, "protocol.skill._of_standard.7", name="cooking", called="baking")
