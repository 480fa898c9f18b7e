"""DevAll's environment for its functions: importable modules, and the `_context` argument.

The search order is that of DevAll's engine: first next to `functions/`, where a checkout has `entity` and `utils`,
then the usual path. If a module is not found, replacements for DevAll's modules follow, then files next to the
function's file. The order matters: `functions/function_calling/utils.py` must not shadow the package `utils`.
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


def enter(given: Given, ask: Ask) -> DevAllHost:
    """Make modules importable as in DevAll, and return the host.

    Args:
        given: `roots`, the first directories to search; `directory`, the directory of the functions; further keys are
            for `DevAllHost`.
        ask: asks the user; its arguments are the fields of a question.
    """
    sys.path[:0] = [root for root in given["roots"] if root not in sys.path]
    # Last, so that installed modules and a checkout of DevAll take precedence.
    sys.meta_path.append(Fallback(given["directory"]))
    return DevAllHost(given, ask)


class Fallback(importlib.abc.MetaPathFinder):
    """Finder of last resort for imports; see the module's docstring."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def find_spec(self, name: str, path: typing.Any = None, target: typing.Any = None) -> typing.Any:
        if name in STAND_INS:
            return importlib.util.spec_from_file_location(name, HERE / STAND_INS[name])
        if name in PACKAGES:
            return importlib.machinery.ModuleSpec(name, None, is_package=True)
        return None if "." in name else importlib.machinery.PathFinder.find_spec(name, [self._directory])


class DevAllHost:
    """Run data that one process needs.

    Args:
        given: `workspace`, the directory of the run's files; `vars` of the workflow; `session_id`; `node_id` of the
            calling agent; `parts`, a file for results that are not text, in its own directory.
        ask: asks the user.
    """

    def __init__(self, given: Given, ask: Ask) -> None:
        self._given = given
        self._ask = ask

    def arguments(self, function: typing.Callable[..., typing.Any]) -> Given:
        """Return the arguments that DevAll adds to a call: the context, if the function accepts it."""
        return {"_context": self.context()} if takes_context(function) else {}

    def context(self) -> Given:
        """Return a new `_context`. Creates the directory for attachments, as DevAll does."""
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
        """Return a function's result as text or JSON; images and files are written to the file for parts."""
        blocks = blocks_of(value)
        if blocks is None:
            return value
        parts = [part_of(block, Path(self._given["parts"]).parent) for block in blocks]
        if all("text" in part for part in parts):
            return "\n".join(part["text"] for part in parts)
        Path(self._given["parts"]).write_text(json.dumps(parts), encoding="utf-8")
        return "\n".join(block.describe() for block in blocks)


def takes_context(function: typing.Callable[..., typing.Any]) -> bool:
    """Return True if the function accepts a keyword argument `_context`."""
    parameters = inspect.signature(function).parameters.values()
    return any(
        each.kind is each.VAR_KEYWORD
        or (each.name == "_context" and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY))
        for each in parameters
    )


# --- questions to the user --------------------------------------------------------------------------------


class PersonReply:
    """Answer of the user."""

    def __init__(self, text: str, metadata: Given) -> None:
        self.text = text
        self.metadata = metadata

    @property
    def blocks(self) -> typing.Any:
        """Text as blocks of a message."""
        from entity.messages import MessageBlock

        return [MessageBlock.text_block(self.text)]

    def as_message_content(self) -> typing.Any:
        return self.blocks


class HumanPrompt:
    """`_context["human_prompt"]`: asks the user who answers the run's questions."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def request(
        self,
        node_id: str,
        task_description: str,
        *,
        inputs: typing.Optional[str] = None,
        metadata: typing.Optional[Given] = None,
    ) -> PersonReply:
        """Ask, and block until the answer.

        Raises:
            EOFError: no user is available.
        """
        text = "\n\n".join(str(part) for part in (task_description, inputs) if part)
        return PersonReply(self._ask(kind="text", text=text, node=str(node_id)), dict(metadata or {}))


# --- results ----------------------------------------------------------------------------------------------


def blocks_of(value: typing.Any) -> typing.Any:
    """Return the blocks of a message, an attachment or a list; None for anything else.

    The check uses attributes, because the classes may be from a checkout of DevAll.
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
    """Return a block as JSON: its text, or its file, which is created in `directory` if needed."""
    attachment = block.attachment
    if attachment is None:
        return {"text": block.describe()}
    path = attachment.local_path
    if attachment.data_uri and not path:
        path = _written_file(attachment.data_uri, directory)
    if not path:
        return {"text": block.describe()}
    return {
        "path": str(Path(path).absolute()),
        "name": attachment.name or Path(path).name,
        "media_type": attachment.mime_type or "application/octet-stream",
    }


def _written_file(uri: str, directory: Path) -> str:
    import tempfile

    head, found, data = uri.partition(";base64,")
    if not found or not head.startswith("data:"):
        return ""
    handle, path = tempfile.mkstemp(dir=directory)
    os.close(handle)
    Path(path).write_bytes(base64.b64decode(data))
    return path
