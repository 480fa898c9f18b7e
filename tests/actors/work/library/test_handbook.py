"""The example of `make demo-research`, over the documents that it is about."""

from __future__ import annotations

import shutil
from pathlib import Path

from support.agent_runs import AgentRunner

REPOSITORY = Path(__file__).parents[4]


async def test_the_handbook_finds_the_passage_and_says_where_it_stands(knowing: AgentRunner, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    shutil.copytree(REPOSITORY / "docs", clone / "docs")
    shutil.copy(REPOSITORY / "README.md", clone)
    handbook = clone / "examples" / "handbook"
    shutil.copytree(REPOSITORY / "examples" / "handbook", handbook, ignore=shutil.ignore_patterns("*.kb"))
    knowing.models.script('{"answer": "An actor is a function."}')
    question = "Is an actor a function with a mailbox and a task?"
    outcome = await knowing.run(question, target=handbook, model="fake:model")
    assert outcome.status == "done", outcome.error
    answer, _, place, _, *passage = outcome.output.splitlines()
    assert answer == "An actor is a function."
    file, _, rest = place.partition(":")
    first, _, last = rest.split()[0].partition("-")
    lines = Path(file).read_text().splitlines()[int(first) - 1 : int(last)]
    assert "What is an actor?" in "".join(lines)
    assert passage[0].strip() in lines
    assert knowing.kinds("knowledge.built", "knowledge.retrieved") == ["knowledge.built", "knowledge.retrieved"]
    assert (handbook / "look_up.kb").is_dir()
