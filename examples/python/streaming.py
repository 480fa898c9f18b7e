"""Streaming: print text and tool calls as they arrive, then tokens and cost."""

import callboard
from callboard.events import LlmDelta, ToolFinished, ToolStarted


def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


def show(event: callboard.Event) -> None:
    if isinstance(event.data, LlmDelta):
        print(event.data.text, end="", flush=True)
    elif isinstance(event.data, ToolStarted | ToolFinished):
        print(f"\n> {event.data}")


clerk = callboard.Agent(name="clerk", instructions="You count words.", tools=[count_words])
outcome = callboard.run_sync(clerk, "How long is 'to be or not to be'?", on_event=show)
print(f"\n{outcome.usage} ${sum(usage.cost for usage in outcome.usage.values()):.6f}")
