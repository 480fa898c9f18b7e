"""The events of runs: one typed stream per run.

Everything that shows, stores or forwards a run is fed from here: terminal narration, JSON lines, websocket,
journal, traces. The envelope is `Event`; what happened is its `data`, a struct whose class fixes the `kind`:

    {"schema_version":1,"seq":7,"ts":"2026-11-03T10:00:00.123456Z","run":"run-7f3a","actor":"/run-7f3a/research/plan#2",
     "parent":"/run-7f3a/research","kind":"node.entered","data":{"node":"plan","type":"llm","visit":2}}

`seq` counts from 1 without gaps within a run. Kinds are added freely; a reader skips the ones it doesn't know.
A field is only ever added, never renamed: that would be a new `schema_version`.

The kinds are in `runs`, `shared` and `work`; those of the kernel, and the envelope, are in `protocol/kernel/events`.
"""

from __future__ import annotations

from ..kernel.events import (
    SCHEMA_VERSION,
    ActorBusy,
    ActorFailed,
    ActorPaused,
    ActorRestarted,
    ActorResumed,
    ActorSpawned,
    ActorStopped,
    ActorStuck,
    ActorWaiting,
    DeadLetter,
    Event,
    EventData,
    Json,
    QuestionAnswered,
    QuestionAsked,
    QuestionExpired,
    ResourceClosed,
    ResourceOpened,
    Warned,
    encode,
    to_wire,
)
from .runs import TERMINAL, JournalCheckpoint, RunCancelled, RunFailed, RunFinished, RunStarted
from .shared import (
    KnowledgeBuilding,
    KnowledgeBuilt,
    KnowledgeRetrieved,
    McpServerFailed,
    McpServerStarted,
    McpServerStarting,
    McpServerStopped,
)
from .work import (
    AgentContinued,
    AgentFinished,
    AgentStarted,
    AgentTold,
    GraphFinished,
    GraphStarted,
    HistoryCompacted,
    LlmDelta,
    LlmFailed,
    LlmReasoning,
    LlmRequest,
    LlmResponse,
    LlmRetry,
    NodeEntered,
    NodeExited,
    NodeSkipped,
    StatePatch,
    StepFinished,
    StepStarted,
    ToolDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    UsageUpdate,
)

KINDS: dict[str, type[EventData]] = {
    payload.kind: payload
    for payload in sorted(EventData.__subclasses__(), key=lambda payload: not payload.kind.startswith("run."))
}
"""Every kind of event, with the struct of its `data`: those of runs first, since docs/events.md has this order."""

__all__ = [
    "KINDS",
    "SCHEMA_VERSION",
    "TERMINAL",
    "ActorBusy",
    "ActorFailed",
    "ActorPaused",
    "ActorRestarted",
    "ActorResumed",
    "ActorSpawned",
    "ActorStopped",
    "ActorStuck",
    "ActorWaiting",
    "AgentContinued",
    "AgentFinished",
    "AgentStarted",
    "AgentTold",
    "DeadLetter",
    "Event",
    "EventData",
    "GraphFinished",
    "GraphStarted",
    "HistoryCompacted",
    "JournalCheckpoint",
    "Json",
    "KnowledgeBuilding",
    "KnowledgeBuilt",
    "KnowledgeRetrieved",
    "LlmDelta",
    "LlmFailed",
    "LlmReasoning",
    "LlmRequest",
    "LlmResponse",
    "LlmRetry",
    "McpServerFailed",
    "McpServerStarted",
    "McpServerStarting",
    "McpServerStopped",
    "NodeEntered",
    "NodeExited",
    "NodeSkipped",
    "QuestionAnswered",
    "QuestionAsked",
    "QuestionExpired",
    "ResourceClosed",
    "ResourceOpened",
    "RunCancelled",
    "RunFailed",
    "RunFinished",
    "RunStarted",
    "StatePatch",
    "StepFinished",
    "StepStarted",
    "ToolDelta",
    "ToolFinished",
    "ToolProgress",
    "ToolStarted",
    "UsageUpdate",
    "Warned",
    "encode",
    "to_wire",
]
