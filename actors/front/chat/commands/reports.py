"""Reports on the chat: `.cost`, `.context`, `.diff`, `.prompt last`, `.steer`, `.reasoning`, `.list`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, get_args

import trio

from .....protocol.chat import AssistantTurn, ReasoningEffort, ToolTurn, UserTurn
from .....protocol.decoding import convert
from .....protocol.errors import Conflict, UsageError
from .....protocol.session import turns_of
from ....views.call_text import call_text
from ....views.money import usd
from ....work.agent.history import estimate
from ...control.run_records import call_of, changes_of_run
from .. import completion
from ..command_line import ChatLine, command
from ..prompting import steer
from .info import counted, table

if TYPE_CHECKING:
    from .....protocol.control.caller import Caller
    from ..chat import Chat

EFFORTS: tuple[str, ...] = get_args(ReasoningEffort)


@command(".cost", "Show the cost of the chat", at_work=True)
async def _cost(line: ChatLine) -> None:
    chat = line.chat
    rows: list[tuple[str, object]] = [("chat", usd(chat.cost, chat.priced))]
    if chat.last_run is not None:
        info = line.hub.get(line.caller, chat.last_run)
        rows += [
            ("last run", usd(info.cost, info.priced)),
            ("input tokens", info.input_tokens),
            ("output tokens", info.output_tokens),
        ]
    await line.say(table(rows))
    if not chat.priced:
        await line.note(
            "The price of a model is not known: `callboard usage` names the model; set its `input_price` in "
            "config.yaml."
        )


@command(".context", "Show the content of the next request", at_work=True)
async def _context(line: ChatLine) -> None:
    info = line.chat.info()
    turns = turns_of(line.chat.place.session)
    kinds = (("your prompts", UserTurn), ("answers", AssistantTurn), ("results of tools", ToolTurn))
    rows: list[tuple[str, object]] = [("model", info.model)]
    for name, kind in kinds:
        found = [turn for turn in turns if isinstance(turn, kind)]
        rows.append((name, f"{len(found)}, about {counted(estimate(found), 'token')}"))
    total = estimate(turns)
    share = f" of {info.window} ({100 * total // info.window} %)" if info.window else ""
    rows.append(("all", f"about {counted(total, 'token')}{share}, without instructions and tools"))
    await line.say(table(rows))


@command(".diff", "Show the file changes of the last answer", usage="[run]", at_work=True)
async def _diff(line: ChatLine) -> None:
    run = line.rest or line.chat.last_run
    if run is None:
        raise Conflict("No run has changed a file yet.")
    changed = await changes_of_run(line.hub, line.caller, run)
    if not changed.files:
        await line.note(f"{run} has changed no file with Callboard's built-in tools.")
    for file in changed.files:
        if file.diff:
            await line.say(file.diff, "diff")
        if file.note or not file.diff:
            await line.note(f"{file.how}: {file.path}" + (f" ({file.note})" if file.note else ""))


@command(".prompt last", "Show the last request to the model", at_work=True)
async def _prompt_last(line: ChatLine) -> None:
    if line.chat.last_run is None:
        raise Conflict("No request was sent to a model yet.")
    await line.say(call_text(await call_of(line.hub, line.caller, line.chat.last_run)))


@command(".steer", "Send a message to the agent while it runs", usage="<text>", at_work=True)
async def _steer(line: ChatLine) -> None:
    if not line.rest:
        raise line.misused()
    if line.chat.answering is None:
        raise Conflict("No agent is running; type a prompt instead.")
    await steer(line)


def _efforts(_chat: Chat, _caller: Caller, words: Sequence[str]) -> completion.Names:
    return [(each, "") for each in (*EFFORTS, "null")] if len(words) < 2 else []


@command(
    ".reasoning", "Set the model's reasoning effort", usage=f"<{'|'.join((*EFFORTS, 'null'))}>", completes=_efforts
)
async def _reasoning(line: ChatLine) -> None:
    chat, given = line.chat, line.rest
    if not given:
        now = chat.place.session.reasoning_effort or chat.settings.reasoning_effort
        await line.say(str(now or "default of the model"))
        return
    if given not in (*EFFORTS, "null"):
        raise UsageError(f"Usage: .reasoning <{'|'.join((*EFFORTS, 'null'))}>")
    value = None if given == "null" else convert(given, ReasoningEffort)
    if not chat.scoped:
        chat.own["reasoning_effort"] = value
        return
    async with chat.place.change(line.hub, line.caller) as session:
        session.reasoning_effort = value


_KINDS: dict[str, tuple[str, Callable[[Chat, Caller], completion.Names]]] = {
    "roles": ("read:roles", completion.roles),
    "agents": ("read:agents", completion.agents),
    "sessions": ("read:sessions", completion.sessions),
    "rags": ("read:agents", completion.rags),
    "macros": ("read:agents", completion.macros),
    "models": ("read:models", lambda chat, _: completion.models(chat.hub.root)),
}
"""Kinds that can be listed: required scope, and function for the names."""


def _kinds(_chat: Chat, _caller: Caller, words: Sequence[str]) -> completion.Names:
    return [(each, "") for each in _KINDS] if len(words) < 2 else []


@command(
    ".list",
    "List models, agents, roles, sessions and more",
    usage=f"<{'|'.join(_KINDS)}>",
    at_work=True,
    completes=_kinds,
)
async def _list(line: ChatLine) -> None:
    # The singular is accepted as well: `.list role`.
    kind = line.rest if line.rest in _KINDS else f"{line.rest}s"
    if kind not in _KINDS:
        raise line.misused()
    await _listed(line, kind)


@command(".agents", "List the agents; change to one with `.agent NAME`", at_work=True)
async def _agents(line: ChatLine) -> None:
    await _listed(line, "agents")


async def _listed(line: ChatLine, kind: str) -> None:
    scope, listed = _KINDS[kind]
    line.need(scope)
    found = await trio.to_thread.run_sync(listed, line.chat, line.caller)
    await line.say(table(found) if found else f"There are no {kind}.")
