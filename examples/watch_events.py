"""Follows a run by its events: which nodes ran, when, and what they cost.

python examples/watch_events.py [prompt]
"""

import sys
from pathlib import Path

import trio

import callboard
from callboard.protocol.events import NodeEntered, NodeExited, UsageUpdate

AGENT = Path(__file__).parent / "agents" / "fanout"


def watch(event: callboard.Event) -> None:
    """Called with every event, in the run's own task: look, and return at once."""
    match event.data:
        case NodeEntered(node=node, type=type_):
            print(f"{event.seq:>4} {node} ({type_}) starts")
        case NodeExited(node=node, seconds=seconds, error=None):
            print(f"{event.seq:>4} {node} took {seconds:.2f} s")
        case NodeExited(node=node, error=error):
            print(f"{event.seq:>4} {node} failed: {error}")
        case UsageUpdate(model=model, input_tokens=taken, output_tokens=given):
            print(f"{event.seq:>4} {model}: {taken} tokens in, {given} out so far")


async def main(prompt: str) -> None:
    """Runs the agent and prints its result."""
    outcome = await callboard.run(AGENT, prompt, on_event=watch)
    print(outcome.output if outcome.status == "done" else outcome.error)


trio.run(main, " ".join(sys.argv[1:]) or "the bicycle")
