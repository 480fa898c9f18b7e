"""Options for an agent of a workflow: tools, memories, thinking, skills, retries; and the stores of memories."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from ..schema import by_tag
from ..tree import Path
from .edges import Count, Id, Texts

Json = Any
Loose: TypeAlias = Annotated[str, Meta(extra={"as_text": True}, extra_json_schema={"x-as-text": True})]
"""A text; a number or a boolean is taken as it is written."""

NotNegative: TypeAlias = Annotated[float, Meta(ge=0)]
Positive: TypeAlias = Annotated[float, Meta(gt=0)]


class _Block(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping of the file with a fixed set of keys."""


# --- tools ------------------------------------------------------------------------------------------------


class ToolEntry(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function of `functions/function_calling/`, or with `module:All` every function of a file."""

    name: Id
    description: Annotated[str | None, Meta(description="Instead of the function's own.")] = None
    parameters: Annotated[dict[str, Json] | None, Meta(description="JSON Schema, instead of the function's own.")] = (
        None
    )
    auto_fill: Annotated[bool, Meta(description="Take from the function what is not said here.")] = True


class FunctionTools(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="function"):
    """Python functions."""

    tools: Annotated[tuple[ToolEntry, ...], Meta(min_length=1)]
    auto_load: bool = True
    timeout: Annotated[Positive | None, Meta(description="Seconds for one call.")] = None


class McpRemoteTools(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="mcp_remote"):
    """The tools of an MCP server that is reached by HTTP."""

    server: Annotated[Id, Meta(description="The server's URL.")]
    headers: dict[str, Loose] = {}
    timeout: Annotated[Positive | None, Meta(description="Seconds for one call.")] = None
    cache_ttl: NotNegative = 0.0
    tool_sources: Texts | None = None


class McpLocalTools(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="mcp_local"):
    """The tools of an MCP server that is started as a process."""

    command: Id
    args: Texts = ()
    cwd: str | None = None
    env: dict[str, Loose] = {}
    inherit_env: bool = True
    startup_timeout: Annotated[Positive, Meta(description="Seconds until it has to be ready.")] = 10.0
    wait_for_log: str | None = None
    cache_ttl: NotNegative = 0.0


ToolSource: TypeAlias = FunctionTools | McpRemoteTools | McpLocalTools

TOOL_SOURCES: dict[str, type[ToolSource]] = by_tag(FunctionTools, McpRemoteTools, McpLocalTools)
"""Every value of `type` in an entry of `tooling`."""


class Tooling(msgspec.Struct, frozen=True, kw_only=True):
    """Entry of `tooling`; with a prefix its tools are called `prefix_name`."""

    config: ToolSource
    prefix: str | None = None
    path: Path = ()


# --- thinking, skills, retries ----------------------------------------------------------------------------


class Reflection(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="reflection"):
    """Reflection: the model reviews its output, and the review is the output of the node."""

    reflection_prompt: Id


class Skills(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Skills of `.agents/skills/`; `allow` is all of them where it is empty."""

    enabled: bool = False
    allow: tuple[str, ...] = ()


class Retry(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a call of the model is tried again. A list that is left out is the default of the model gateway."""

    enabled: bool = True
    # These three defaults are those of DevAll's program.
    max_attempts: Count = 5
    min_wait_seconds: NotNegative = 1.0
    max_wait_seconds: NotNegative = 6.0
    retry_on_status_codes: tuple[int, ...] | None = None
    retry_on_exception_types: tuple[str, ...] | None = None
    non_retry_exception_types: tuple[str, ...] = ()
    retry_on_error_substrings: tuple[str, ...] | None = None


# --- memories ---------------------------------------------------------------------------------------------

Stage: TypeAlias = Literal["pre_gen_thinking", "gen", "post_gen_thinking", "finished"]


class MemoryUse(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Entry of a node's `memories`: a store, and when it is read and written.

    The defaults are those of the guide; with `compat: devall` they are 3, -1.0, true and true.
    """

    name: Annotated[Id, Meta(description="A store of the graph's `memory`.")]
    retrieve_stage: Annotated[
        tuple[Stage, ...] | None,
        Meta(
            description="When it is read: an agent at every stage if left out, a person at `gen`.",
            extra={"one_or_many": True},
            extra_json_schema={"x-one-or-many": True},
        ),
    ] = None
    top_k: Count = 10
    similarity_threshold: float = 0.5
    read: bool = False
    write: bool = False
    path: Path = ()


class Embedding(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model that makes vectors of texts."""

    provider: Id
    model: Id
    api_key: str | None = None
    base_url: str | None = None
    params: dict[str, Json] = {}


class FileSource(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file or directory of a file store."""

    path: Id
    file_types: Texts | None = None
    recursive: bool = True
    encoding: str = "utf-8"


class SimpleStore(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="simple"):
    """Remembers what nodes were given and said, found again by likeness."""

    memory_path: Annotated[str | None, Meta(description="A file; `auto` or nothing for one of the run's.")] = None
    embedding: Embedding | None = None


class FileStore(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="file"):
    """Documents, never written to. `memory_path` is another name of `index_path`."""

    file_sources: Annotated[tuple[FileSource, ...], Meta(min_length=1)]
    index_path: str | None = None
    memory_path: str | None = None
    embedding: Embedding | None = None


class Blackboard(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="blackboard"):
    """Remembers outputs in order; reading gives the latest."""

    memory_path: str | None = None
    max_items: Count = 1000


class Mem0Store(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="mem0"):
    """The mem0 service."""

    api_key: Id
    org_id: str | None = None
    project_id: str | None = None
    user_id: str | None = None
    agent_id: str | None = None


StoreConfig: TypeAlias = SimpleStore | FileStore | Blackboard | Mem0Store

STORES: dict[str, type[StoreConfig]] = by_tag(SimpleStore, FileStore, Blackboard, Mem0Store)
"""Every value of a store's `type`."""


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the graph's `memory`."""

    name: str
    config: StoreConfig
    path: Path = ()
