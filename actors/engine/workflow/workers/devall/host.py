"""DevAll as its functions see it: the modules they may import, and the `_context` they are called with.

Modules are looked for where DevAll's own engine looks: first beside `functions/`, where a checkout has `entity` and
`utils`, then as everywhere. What is found nowhere is looked for here: stand-ins for modules of DevAll's, then files
beside the function's own. That order matters: `functions/function_calling/utils.py` is no package `utils`.
"""

from __future__ import annotations

import base64
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import os
import sys
import typing
from pathlib import Path

HERE = Path(__file__).parent

STAND_INS = {
    "entity.messages": "messages.py",
    "filelock": "filelock.py",
    "utils.attachments": "attachments.py",
    "utils.function_catalog": "function_catalog.py",
    "utils.workspace_scanner": "workspace_scanner.py",
}
PACKAGES = ("entity", "utils")

Given = typing.Dict[str, typing.Any]
Ask = typing.Callable[..., str]


def enter(given: Given, ask: Ask) -> Host:
    """Make modules importable as in DevAll.

    Args:
        given: `roots`, directories that modules are looked for in first; `directory`, that of the functions; what
            `Host` wants to know.
        ask: asks a person; it takes the fields of a question.
    """
    sys.path[:0] = [root for root in given["roots"] if root not in sys.path]
    sys.meta_path.append(Fallback(given["directory"]))
    return Host(given, ask)


class Fallback(importlib.abc.MetaPathFinder):
    """Finds what is found nowhere else; see the module."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def find_spec(self, name: str, path: typing.Any = None, target: typing.Any = None) -> typing.Any:
        """See `importlib.abc.MetaPathFinder`."""
        if name in STAND_INS:
            return importlib.util.spec_from_file_location(name, HERE / STAND_INS[name])
        if name in PACKAGES:
            return importlib.machinery.ModuleSpec(name, None, is_package=True)
        return None if "." in name else importlib.machinery.PathFinder.find_spec(name, [self._directory])


class Host:
    """What one process has of a run.

    Args:
        given: `workspace`, the directory of the run's files; `vars`, those of the workflow; `session_id`; `node_id` of
            the agent that calls; `parts`, a file for what a result shows beside text, in a directory of its own.
        ask: asks a person.
    """

    def __init__(self, given: Given, ask: Ask) -> None:
        self._given = given
        self._ask = ask

    def arguments(self, function: typing.Callable[..., typing.Any]) -> Given:
        """What DevAll adds to the arguments of a call: the context, if the function takes one."""
        return {"_context": self.context()} if takes_context(function) else {}

    def context(self) -> Given:
        """A new `_context`. The directory for attachments is there from then on, as in DevAll."""
        from utils.attachments import AttachmentStore

        given = self._given
        workspace = Path(given["workspace"])
        context = {
            "graph_directory": workspace,
            "vars": given["vars"],
            "python_workspace_root": workspace,
            "attachment_store": AttachmentStore(workspace / "attachments"),
            "session_id": given["session_id"],
            "human_prompt": HumanPrompt(self._ask),
        }
        if given.get("node_id"):
            context["node_id"] = given["node_id"]
        return context

    def result(self, value: typing.Any) -> typing.Any:
        """The text or JSON of what a function returned; images and files go into the file for parts."""
        blocks = blocks_of(value)
        if blocks is None:
            return value
        parts = [part_of(block, Path(self._given["parts"]).parent) for block in blocks]
        if all("text" in part for part in parts):
            return "\n".join(part["text"] for part in parts)
        Path(self._given["parts"]).write_text(json.dumps(parts), encoding="utf-8")
        return "\n".join(block.describe() for block in blocks)


def takes_context(function: typing.Callable[..., typing.Any]) -> bool:
    """Whether the function can be given `_context` by its name."""
    parameters = inspect.signature(function).parameters.values()
    return any(
        each.kind is each.VAR_KEYWORD
        or (each.name == "_context" and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY))
        for each in parameters
    )


# --- people -----------------------------------------------------------------------------------------------


class Reply:
    """What a person answered."""

    def __init__(self, text: str, metadata: Given) -> None:
        self.text = text
        self.metadata = metadata

    @property
    def blocks(self) -> typing.Any:
        """The text as blocks of a message."""
        from entity.messages import MessageBlock

        return [MessageBlock.text_block(self.text)]

    def as_message_content(self) -> typing.Any:
        """As the content of a message."""
        return self.blocks


class HumanPrompt:
    """`_context["human_prompt"]`: a question goes to the person who answers those of the run."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def request(
        self,
        node_id: str,
        task_description: str,
        *,
        inputs: typing.Optional[str] = None,
        metadata: typing.Optional[Given] = None,
    ) -> Reply:
        """Ask, and wait for the answer.

        Raises:
            EOFError: there is no person to ask.
        """
        text = "\n\n".join(str(part) for part in (task_description, inputs) if part)
        return Reply(self._ask(kind="text", text=text, node=str(node_id)), dict(metadata or {}))


# --- results ----------------------------------------------------------------------------------------------


def blocks_of(value: typing.Any) -> typing.Any:
    """The blocks of a message, of an attachment or of a list; None for anything else.

    They are known by what they can do: their classes may be a checkout's.
    """
    if hasattr(value, "as_message_block"):
        return [value.as_message_block()]
    if hasattr(value, "role") and callable(getattr(value, "blocks", None)):
        return value.blocks()
    listed = value if isinstance(value, list) else [value]
    return (
        listed if listed and all(hasattr(each, "describe") and hasattr(each, "attachment") for each in listed) else None
    )


def part_of(block: typing.Any, directory: Path) -> Given:
    """A block as JSON: its text, or the file that holds it, which is made in `directory` if there is none."""
    attachment = block.attachment
    if attachment is None:
        return {"text": block.describe()}
    path = attachment.local_path
    if attachment.data_uri and not path:
        path = _kept(attachment.data_uri, directory)
    if not path:
        return {"text": block.describe()}
    return {
        "path": str(Path(path).absolute()),
        "name": attachment.name or Path(path).name,
        "media_type": attachment.mime_type or "application/octet-stream",
    }


def _kept(uri: str, directory: Path) -> str:
    import tempfile

    head, found, data = uri.partition(";base64,")
    if not found or not head.startswith("data:"):
        return ""
    handle, path = tempfile.mkstemp(dir=directory)
    os.close(handle)
    Path(path).write_bytes(base64.b64decode(data))
    return path
