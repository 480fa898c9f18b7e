"""Reconstruct the inputs of a converted workflow's nodes from the outputs of the nodes before them.

The nodes of workflow.json run layer by layer. A node runs if the run starts with it or an edge has triggered it.
Its inputs are all messages delivered to it before. Answers of models and users are in the state, under the node's
key; the outputs of all other nodes are computed here.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any


def turn(names: list[str]) -> None:
    """Print the prompts of the nodes `names` that run, and the next node, as JSON.

    A script node calls this before these nodes; without names it prints the result of the workflow.
    """
    file = os.environ.get("GRAPH_STATE_FILE")
    state = json.loads(Path(file).read_text(encoding="utf-8") if file else os.environ["GRAPH_STATE"])
    flow = json.loads(Path(__file__).with_name("workflow.json").read_text(encoding="utf-8"))
    result, asked = replay(flow, state, names)
    if not names:
        sys.stdout.write(json.dumps({"result": result}))
        return
    written = {flow["nodes"][name]["key"] + "_prompt": text for name, text in asked.items()}
    if len(names) == 1 and asked:
        written["_next"] = flow["nodes"][names[0]]["key"]
    sys.stdout.write(json.dumps(written))


def replay(flow: Any, state: Any, names: list[str]) -> tuple[str, dict[str, str]]:
    """Return the result of the workflow and an empty mapping, or "" and the prompt of each of `names` that runs.

    With `names` the replay stops at their layer, so that later answers need not exist yet.
    """
    nodes = flow["nodes"]
    queues = {name: list(node["seeds"]) for name, node in nodes.items()}
    for name in flow["start"]:
        queues[name] = [{"role": "user", "source": "TASK", "text": state["initial_prompt"], "keep": False}]
    triggered = set(flow["start"])
    said = {}
    for layer in flow["layers"]:
        running = [name for name in layer if name in triggered]
        if any(name in names for name in layer):
            return "", {name: prompt(nodes[name], queues[name]) for name in running if name in names}
        outputs = {name: spoken(name, nodes[name], queues[name], state) for name in running}
        said.update({name: messages[-1]["text"] for name, messages in outputs.items()})
        for name, messages in outputs.items():
            for message in messages:
                for edge in flow["edges"].get(name, ()):
                    deliver(edge, name, message, queues[edge["to"]], triggered)
    ends = [name for name in flow["ends"] if name in said][:1] or flow["last"]
    return (said.get(ends[0], "") if ends else ""), {}


def spoken(name: str, node: Any, inputs: list[Any], state: Any) -> list[Any]:
    """Return the output of a node: computed for a literal or passthrough, else the answer in the state."""
    if node["kind"] == "literal":
        return [message(node["role"], node["content"], name, fixed=True)]
    if node["kind"] == "passthrough":
        if not inputs:
            return [message("user", "", name)]
        passed = inputs[-1:] if node["only_last"] else inputs
        return [{**each, "source": each["source"] or name} for each in passed]
    return [message("assistant" if node["kind"] == "agent" else "user", state[node["key"] + "_said"], name)]


def message(role: str, text: str, source: str | None = None, *, fixed: bool = False) -> dict[str, Any]:
    """Return a message; edges do not change the role of a `fixed` one."""
    return {"role": role, "source": source, "text": text, "keep": False, "fixed": fixed}


def deliver(edge: Any, source: str, given: Any, queue: list[Any], triggered: set[str]) -> None:
    """Send a message over an edge: if the condition is met, add it to the target's queue and trigger the target."""
    if not met(edge["condition"], given["text"]):
        return
    text = processed(edge["process"], given["text"]) if edge["carries"] else ""
    if edge["clears"] or edge["clears_kept"]:
        queue[:] = [each for each in queue if not edge["clears_kept" if each["keep"] else "clears"]]
    if text is None:
        return
    if edge["carries"]:
        role = given["role"] if given.get("fixed") else "user"
        keep = edge["keeps"] or given["keep"]
        queue.append({**given, "role": role, "source": source, "text": text, "keep": keep})
    if edge["triggers"]:
        triggered.add(edge["to"])


def met(condition: Any, text: str) -> bool:
    """Return True if a source's text meets a condition; None is always met."""
    if condition is None:
        return True
    if condition["type"] == "never":
        return False
    if condition["type"] == "regex":
        return re.search(condition["pattern"], text, flags_of(condition["flags"])) is not None
    exact = condition["case_sensitive"]
    seen = text if exact else text.lower()

    def there(word: str) -> bool:
        return bool(word) and (word if exact else word.lower()) in seen

    if any(map(there, condition["none"])) or not all(there(word) for word in condition["all"] if word):
        return False
    if not condition["any"] and not condition["regex"]:
        return True
    flags = 0 if exact else re.IGNORECASE
    return any(map(there, condition["any"])) or any(re.search(each, text, flags) for each in condition["regex"])


def processed(process: Any, text: str) -> str | None:
    """Return the text that arrives over an edge, or None if nothing does."""
    if process is None:
        return text
    if process["type"] == "template":
        return str(process["template"]).replace("{{content}}", text)
    group = process["group"] or 0
    template = process["template"]
    flags = 0 if process["case_sensitive"] else re.IGNORECASE
    flags |= (re.MULTILINE if process["multiline"] else 0) | (re.DOTALL if process["dotall"] else 0)
    found = [match[group] for match in re.finditer(process["pattern"], text, flags)]
    found = [template.replace("{match}", each) if template else each for each in found if each is not None]
    if found:
        return "\n".join(found if process["multiple"] else found[:1])
    if process["on_no_match"] == "drop":
        return None
    return (process["default_value"] or "") if process["on_no_match"] == "default" else text


def flags_of(names: list[str]) -> int:
    """Return the flags of a pattern from their names."""
    flags = 0
    for name in names:
        flags |= getattr(re, name)
    return flags


def prompt(node: Any, inputs: list[Any]) -> str:
    """Return the text for a model or a user."""
    blocks = [f"=== INPUT FROM {each['source'] or 'UNKNOWN'} ({each['role']}) ===\n\n{each['text']}" for each in inputs]
    if node["kind"] == "human":
        return "\n\n".join([*filter(None, [node["description"]]), *blocks])
    if node["headed"]:
        return "\n\n".join(blocks)
    return inputs[-1]["text"] if inputs else ""
