"""Commands for the last exchange: `.continue`, `.regenerate`, `.retry`, `.undo`, `.copy`.

The conversation may change between a check and the change itself, because other processes can write to the session. So
each command checks again within `place.change`, where it holds the session's lock.
"""

from __future__ import annotations

from pathlib import Path

from .....protocol.chat import UserTurn, text_of
from .....protocol.errors import CallboardError, Conflict
from .....protocol.session import Session, turns_of
from ...control.run_records import changes_of_run, restore_run
from ..chat_storage import LastPrompt, Message, PromptStart
from ..command_line import ChatLine, command
from ..prompting import ask

CONTINUE = "Go on exactly where your last answer ends. Repeat nothing of it, and say nothing before you go on."


@command(".continue", "Let the model continue its last answer")
async def _continue(line: ChatLine) -> None:
    chat, place = line.chat, line.chat.place
    await place.refresh(line.hub, line.caller)
    if place.last() is None or place.last_reply is None:
        raise Conflict("Unable to continue the response: there is no answer yet.")
    start = place.mark()
    try:
        await ask(line, LastPrompt(CONTINUE), shown="continue", start=start)
    finally:
        if start in place.starts:
            place.starts.remove(start)
    if _joins(place.session.messages, start):
        # Check again under the lock: another process may have changed the messages.
        async with place.change(line.hub, line.caller) as session:
            if _joins(session.messages, start):
                at = start.at
                session.messages[at - 1]["content"] += session.messages[at + 1]["content"]
                del session.messages[at : at + 2]
        chat.reply = place.last_reply
    # Not joinable (for example, the answer called tools): the continuation becomes part of the exchange before.
    elif place.starts and place.starts[-1].end == start.at:
        place.starts[-1].end = start.end


def _joins(messages: list[Message], start: PromptStart) -> bool:
    """Return True if the new messages are a single answer to `CONTINUE`, directly after another answer."""
    if not start.is_in(messages) or start.end != start.at + 2 or start.at < 1:
        return False
    first, second = messages[start.at - 1], messages[start.at + 1]
    texts = isinstance(first.get("content"), str) and isinstance(second.get("content"), str)
    return texts and first.get("role") == second.get("role") == "assistant"


@command(".retry", "Ask the last question again, after it failed")
@command(".regenerate", "Ask the last question again, and replace its answer")
async def _again(line: ChatLine) -> None:
    chat, place = line.chat, line.chat.place
    await place.refresh(line.hub, line.caller)
    prompt = _last_prompt(line)
    if prompt is None:
        raise Conflict("Unable to regenerate the response: there is no question yet.")
    # After a prompt without any result, the last exchange belongs to an earlier prompt and must stay.
    vain = place.drop_vain()
    last, taken = place.last(), None
    if last is not None and (chat.last_prompt is None or (last in place.starts and not vain)):
        if last.end < len(place.session.messages):
            # Removing the exchange would leave later messages of others without their context.
            raise Conflict(
                "Another client has added messages to the session since; remove your last question with `.undo`."
            )
        taken = await place.remove_last(line.hub, line.caller)
    await ask(line, prompt, instead=taken)


def _last_prompt(line: ChatLine) -> LastPrompt | None:
    if line.chat.last_prompt is not None:
        return line.chat.last_prompt
    said = line.chat.place.last_exchange()
    turns = turns_of(Session(messages=said[:1]))
    if not turns or not isinstance(turns[0], UserTurn):
        return None
    return LastPrompt(text_of(turns[0].content))


@command(".undo", "Remove the last question and its answer")
async def _undo(line: ChatLine) -> None:
    chat = line.chat
    # Only forgets the failed prompt. The exchange before it stays, so that `.undo` never removes two at once.
    if chat.place.drop_vain():
        chat.last_prompt = None
        await line.note(
            "The last prompt added no messages, so nothing was removed; `.undo` again removes the exchange before it."
        )
        return
    last = await chat.place.remove_last(line.hub, line.caller)
    if last is None:
        why = (
            "the conversation has no messages yet"
            if chat.place.is_empty
            else "the earlier messages were replaced by a summary"
        )
        raise Conflict(f"There is nothing to undo: {why}.")
    run, taken = last[0].run, last[1]
    chat.last_prompt, chat.reply = None, chat.place.last_reply
    said = turns_of(Session(messages=taken[:1]))
    words = text_of(said[0].content) if said and isinstance(said[0], UserTurn) else ""
    await line.note(f"Taken back: {_short(words)}")
    if run is not None and not line.in_macro and line.caller.has("run:files") and line.caller.has("write:runs"):
        await _restore(line, run)


async def _restore(line: ChatLine, run: str) -> None:
    """Offer to restore the files that Callboard's own tools changed in a run."""
    try:
        changed = await changes_of_run(line.hub, line.caller, run)
    except CallboardError:  # the run was deleted meanwhile
        return
    if not changed.files:
        return
    count = len(changed.files) + changed.more
    names = ", ".join(_relative_path(each.path) for each in changed.files[:5]) + (", ..." if count > 5 else "")
    question = f"Restore {count} file{'s' if count > 1 else ''} that the answer has changed ({names})?"
    if not await line.confirm(question, default=True):
        return
    done = await restore_run(line.hub, line.caller, run)
    for each in done.restored:
        await line.note(f"{'removed' if each.done == 'removed' else 'restored'} {_relative_path(each.path)}")
    for left in done.left:
        await line.warn(f"did not restore {_relative_path(left.path)}: {left.why}")


def _relative_path(path: str) -> str:
    """Return the path relative to the working directory if it is inside."""
    inside = Path(path).is_relative_to(Path.cwd())
    return str(Path(path).relative_to(Path.cwd())) if inside else path


def _short(text: str) -> str:
    one = " ".join(text.split())
    return one if len(one) <= 80 else f"{one[:77]}..."


@command(".copy", "Copy the last answer", at_work=True)
async def _copy(line: ChatLine) -> None:
    if not line.chat.reply:
        raise Conflict("There is no answer to copy yet.")
    await line.copy(line.chat.reply)
    await line.note("Copied the last answer.")
