"""Structs of a `config.yaml`: an agent that works in a loop, calling tools until it is done.

Every field of Loki's is read and checked. A field that this release cannot execute is reported when the agent runs.
As in `graph`, the field types are the table: they drive the reader and the JSON Schema.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from .chat import Models, ReasoningEffort, ThinkingBudget
from .graph import (
    INJECT_SKILLS,
    NO_JOBS,
    ON_UNKNOWN,
    OWN_LIMITS,
    SKILL_INSTRUCTIONS,
    AtLeastOne,
    Count,
    Id,
    McpTools,
    OwnLimits,
    Seconds,
    Variable,
)
from .interrupted_calls import OnUnknown
from .permissions import Permissions
from .placement import PLACE, Place
from .problems import Problem, errors_in
from .reading import Reading, in_file_order
from .sandbox import OWN, Own
from .schema import no_effect, schema_of
from .tree import Path
from .yaml_tree import Source, parse_mapping

Texts: TypeAlias = tuple[str, ...]


class AgentFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An agent that answers a prompt by itself, with tools if it has any."""

    name: Annotated[Id, Meta(description="The agent's name; should equal its directory's.")]
    description: str = ""
    version: Annotated[
        str,
        Meta(
            description="Your agent's own version.",
            extra={"number_too": True},
            extra_json_schema={"x-number-too": True},
        ),
    ] = ""
    instructions: Annotated[str, Meta(description="The system prompt; may name variables as {{name}}.")] = ""
    dynamic_instructions: Annotated[
        bool, Meta(description="Take the instructions from the tool function `_instructions`.")
    ] = False
    model: Models = None
    temperature: float | None = None
    top_p: float | None = None
    reasoning_effort: Annotated[ReasoningEffort | None, Meta(description="Reasoning effort of the model.")] = None
    thinking_budget: Annotated[ThinkingBudget | None, Meta(description="Reasoning budget in tokens.")] = None
    global_tools: Annotated[Texts, Meta(description="Tools of the configuration directory, `fs_cat.sh`.")] = ()
    permissions: Annotated[
        Permissions,
        Meta(
            description="Tool to allow, ask or deny. It can only restrict the user's permissions, "
            "also for child agents."
        ),
    ] = {}
    limits: Annotated[OwnLimits | None, OWN_LIMITS] = None
    max_turns: Annotated[AtLeastOne, Meta(description="Maximum number of model replies.")] = 200
    tool_timeout: Annotated[Seconds | None, Meta(description="Time limit of a tool call in seconds.")] = None
    on_unknown: Annotated[OnUnknown | None, ON_UNKNOWN] = None
    sandbox: Annotated[Own | None, OWN] = None
    place: Annotated[Place | None, PLACE] = None
    mcp_servers: Annotated[Texts, Meta(description="MCP servers of mcp.json.")] = ()
    mcp_tools: McpTools = {}
    documents: Annotated[
        Texts, Meta(description="Documents of the knowledge base: files, directories, globs or URLs.")
    ] = ()
    knowledge: Annotated[
        Literal["prompt", "tool", "both"],
        Meta(description="Use of `documents`: a search for every prompt, the tool `knowledge__search`, or both."),
    ] = "prompt"
    variables: Annotated[tuple[Variable, ...], Meta(description="Variables that the user can set.")] = ()
    conversation_starters: Texts = ()
    agent_session: Annotated[str | None, Meta(description="Name of the session that stores the conversation.")] = None
    auto_continue: Annotated[bool, Meta(description="Continue automatically while the todo list has open items.")] = (
        False
    )
    max_auto_continues: Annotated[Count, Meta(description="Maximum number of automatic continuations.")] = 10
    inject_todo_instructions: bool = True
    continuation_prompt: str | None = None
    can_ask_user: Annotated[bool, Meta(description="Offer the tools that ask the user, `user__ask` and the like.")] = (
        True
    )
    can_spawn_agents: bool = False
    spawnable_agents: Annotated[Texts | None, Meta(description="The only agents it may spawn.")] = None
    # 4 children, 4,000 bytes of an answer and 300 s for a question are Loki's defaults: files written for it rely on
    # them.
    max_concurrent_agents: AtLeastOne = 4
    # None and not Loki's 3: in a child's file, an omitted key must not lower the limit of the agent that was started.
    max_agent_depth: Annotated[
        Count | None, Meta(description="Maximum depth of child agents; 3, or the setting of a parent agent.")
    ] = None
    max_concurrent_jobs: Annotated[AtLeastOne | None, NO_JOBS] = None
    inject_spawn_instructions: bool = True
    inject_teammate_instructions: Annotated[bool, Meta(description="Explain the messaging tools.")] = True
    inject_user_instructions: Annotated[bool, Meta(description="Explain the tools that ask the user.")] = True
    summarization_model: Models = None
    summarization_threshold: Annotated[Count, Meta(description="Maximum bytes of a child's answer.")] = 4000
    escalation_timeout: Annotated[Seconds, Meta(description="Seconds to wait for the answer to a question.")] = 300
    compression_threshold: Annotated[
        int | None, Meta(description="Compress above this number of tokens; 0 or less: never.")
    ] = None
    compression_keep_last: Count | None = None
    max_tool_result_chars: Count | None = None
    memory: Annotated[bool | None, no_effect("memory across conversations is not supported")] = None
    workspace_instructions: Annotated[
        bool, Meta(description="Add the AGENTS.md of the directory to the system prompt.")
    ] = True
    skills_enabled: Annotated[bool | None, Meta(description="Allow it to read skills.")] = None
    enabled_skills: Annotated[Texts | None, Meta(description="The only skills it may read.")] = None
    inject_skill_instructions: Annotated[bool | None, INJECT_SKILLS] = None
    skill_instructions: Annotated[str | None, SKILL_INSTRUCTIONS] = None
    enabled_macros: Annotated[Texts | None, no_effect("agents can't run macros")] = None


class Agent(AgentFile, frozen=True, kw_only=True):
    """Agent that was read: the fields of the file, and their positions."""

    # Not in `AgentFile`: the JSON Schema is generated from that struct, and no file has this key.
    source: Source = Source()

    def where(self, path: Path) -> tuple[int, int]:
        """Return line and column of the value at `path`; (0, 0) for an agent that was not read from text."""
        return self.source.where(path)


def read_agent(text: str, file: str, *, strict: bool = False) -> tuple[Agent | None, list[Problem]]:
    """Return the agent of a YAML text, and all problems by line; None if one of them is an error.

    `file` is the name of the text in problems. With `strict`, warnings (unknown keys) are errors.
    """
    agent, problems = draft_agent(text, file, strict=strict)
    return (None if errors_in(problems) else agent), problems


def draft_agent(text: str, file: str, *, strict: bool = False) -> tuple[Agent | None, list[Problem]]:
    """Return the readable part of an agent in spite of errors, and all problems; None if nothing is readable."""
    root, problems = parse_mapping(text, file)
    if root is None:
        return None, problems
    reading = Reading(file)
    agent = reading.fill(
        Agent, root, what="an agent", given={"source": Source(file, text)}, hidden=("source",), elsewhere=_ELSEWHERE
    )
    return agent, in_file_order([*problems, *reading.problems], strict=strict)


def agent_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of `config.yaml`, for editors."""
    return schema_of(AgentFile, title="Callboard agent (config.yaml)")


_ELSEWHERE = dict.fromkeys(("nodes", "start", "settings", "initial_state", "reducers"), "a graph, in a graph.yaml")
