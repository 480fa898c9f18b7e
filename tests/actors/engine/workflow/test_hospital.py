"""The hospital of the guide, written out: memories, second thoughts, a map, a hard reset, an exit by keyword."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from support.fake_models import Reply, Request
from support.workflow_agents import Agents, said

from callboard.actors.engine.workflow.run import WorkflowResult

HOSPITAL = Path(__file__).parents[4] / "examples" / "workflows" / "hospital.yaml"
ROUND = ["environment", "PatientGenerator", "NurseIntake", "Doctor", "HumanControl"]


class Cast:
    """The model, in all its roles.

    Attributes:
        heard: the requests, by who was to answer; second thoughts of X are `X again`.
        rounds: that have begun.
    """

    def __init__(self) -> None:
        self.heard: dict[str, list[Request]] = {}
        self.rounds = 0

    def __call__(self, request: Request) -> str:
        text = request.body.decode()
        who = next(name for name, words in WORDS.items() if words in text)
        if "Here is a conversation between two roles" in text:
            who = f"{who} again"
        self.heard.setdefault(who, []).append(request)
        return str(getattr(self, "_" + who.replace(" ", "_"))(request))

    def _environment(self, request: Request) -> str:
        self.rounds += 1
        return f"draft of story {self.rounds}"

    def _environment_again(self, request: Request) -> str:
        return f"story {self.rounds}: the moon is far"

    def _patients(self, request: Request) -> str:
        return "[]"

    def _patients_again(self, request: Request) -> str:
        return json.dumps([{"name": f"Pat-{self.rounds}-{i}", "complaint": "flour"} for i in range(5)])

    def _nurse(self, request: Request) -> str:
        return "note on " + name_in(request.system)

    def _doctor(self, request: Request) -> str:
        return "plan for " + name_in(request.prompt)


WORDS = {
    "environment": "You tell the story of a hospital",
    "patients": "Invent five patients",
    "nurse": "You are the nurse",
    "doctor": "You are the doctor",
}


def name_in(text: str) -> str:
    return next(word.strip('.,":}') for word in text.split() if word.startswith("Pat-"))


async def played(agents: Agents, cast: Callable[[Request], Reply | str], *answers: str) -> WorkflowResult:
    agents.models.answer_with(cast)
    variables = {"BASE_URL": agents.models.openai_base, "API_KEY": "k", "MODEL": "m"}
    return await agents.run(HOSPITAL.read_text(), "a night", answers=answers, variables=variables, name="hospital.yaml")


@pytest.mark.usefixtures("weights")
async def test_three_rounds_are_played_and_a_keyword_ends_them(agents: Agents) -> None:
    cast = Cast()
    result = await played(agents, cast, "continue", "a storm comes", "SIMULATION ENDED.")
    assert (result.error, result.output) == (None, "Simulation complete.")
    assert result.order == [*ROUND, *ROUND, *ROUND, "SimulationEnd"]
    assert cast.rounds == 3

    # the map: five patients a round, each with a nurse and a doctor who know nobody else
    nurses = Counter(name_in(request.system) for request in cast.heard["nurse"])
    assert nurses == Counter(f"Pat-{n}-{i}" for n in (1, 2, 3) for i in range(5))
    assert all(
        request.system.count(name_in(request.system)) == request.system.count("Pat-") for request in cast.heard["nurse"]
    )
    doctors = [said(request)[-1][1] for request in cast.heard["doctor"]]
    assert sorted(doctors) == sorted(f"note on Pat-{n}-{i}" for n in (1, 2, 3) for i in range(5))
    shown = [data.question["text"] for data in agents.of("question.asked")]
    assert [text.count("plan for Pat-") for text in shown] == [5, 5, 5]

    # the hard reset: a round begins with what was said now, though its window holds everything
    second, third = cast.heard["environment"][1:]
    (_, (role, news)) = said(second)
    assert (role, news.splitlines()[0]) == ("user", "The user says: continue")
    assert [role for role, _ in said(third)] == ["system", "user"]


@pytest.mark.usefixtures("weights")
async def test_memories_outlive_rounds_and_runs_and_know_nothing_of_each_other(agents: Agents) -> None:
    first, second = Cast(), Cast()
    await played(agents, first, "continue", "SIMULATION ENDED.")
    await played(agents, second, "SIMULATION ENDED.")
    thoughts = [request.prompt for cast in (first, second) for request in cast.heard["patients again"]]
    stories = [request.prompt for cast in (first, second) for request in cast.heard["environment again"]]
    assert ["Related Memories" in text for text in thoughts] == [False, True, True]
    assert ["Related Memories" in text for text in stories] == [False, True, True]
    assert ["Pat-1-4" in text for text in thoughts] == [False, True, True]
    assert "Pat-2-4" in thoughts[2]  # of the run before
    assert "story 2" in stories[2]
    assert not any("Pat-" in text for text in stories)
    assert not any("Related Memories" in str(said(request)) for request in first.heard["environment"])


@pytest.mark.usefixtures("weights")
async def test_nurses_work_at_the_same_time(agents: Agents) -> None:
    cast, waiting = Cast(), trio.Event()

    def answer(request: Request) -> Reply | str:
        text = cast(request)
        if len(cast.heard.get("nurse", ())) == 5:
            waiting.set()
        return Reply(text=text, hold=waiting) if text.startswith("note") else text

    with trio.fail_after(60):
        result = await played(agents, answer, "SIMULATION ENDED.")
    assert result.output == "Simulation complete."
