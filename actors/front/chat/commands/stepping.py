"""`.steps` and `.from`: steps of a durable run, and forks that continue from one of them with another prompt.

The fork is watched as with `.attach`; its output does not become part of the conversation.
"""

from __future__ import annotations

from .....protocol.control import durable
from .....protocol.control.things import Step
from .....protocol.errors import Conflict
from ...control.forking import fork_run, steps_of_run
from ..line import ChatLine
from ..table import command
from .attaching import watch
from .looking import in_columns

MOST = 1000
"""Maximum number of steps shown; earlier ones are omitted."""

LONGEST = 100
"""Maximum characters of a step's text."""


@command(".steps", "Show what the last run has done, step by step", usage="[run]", at_work=True, scopes=("write:runs",))
async def _steps(line: ChatLine) -> None:
    run, after = _run(line, line.rest), 0
    steps: list[Step] = []
    while True:
        page = await steps_of_run(line.hub, line.caller, run, after, MOST)
        steps = [*steps, *page.steps][-MOST:]
        if page.next is None:
            break
        after = page.next
    rows = [(str(step.row), step.where, step.what, step.text) for step in steps]
    await line.say("\n".join(in_columns([("STEP", "WHERE", "WHAT", ""), *rows], LONGEST)))
    await line.note("`.from STEP [words]` has another run go on from one of them.")


@command(
    ".from",
    "Run again from a step of the last run, with other words",
    usage="<step> [words...]",
    scopes=("write:runs", "run:agents"),
)
async def _from(line: ChatLine) -> None:
    at, _, words = line.rest.partition(" ")
    if not at:
        raise line.misused()
    # `RUN:STEP` selects a step of another run.
    run, _, at = at.rpartition(":")
    wanted = durable.ForkRun(run=_run(line, run), at=at, prompt=words.strip() or None, dry_run=True)
    # Dry run first: the user must see which effects would be repeated before they are.
    looked = await fork_run(line.hub, line.caller, wanted)
    if looked.again:
        await line.say("It does again what came behind there:\n" + "\n".join(f"- {each}" for each in looked.again))
        if not await line.confirm("Go on?"):
            return
    begun = await fork_run(line.hub, line.caller, durable.ForkRun(run=wanted.run, at=at, prompt=wanted.prompt))
    assert begun.run is not None
    await watch(line, begun.run)


def _run(line: ChatLine, word: str) -> str:
    run = word or line.chat.last_run
    if run is None:
        raise Conflict("No run was begun here yet; `.steps RUN` shows those of another one.")
    return run
