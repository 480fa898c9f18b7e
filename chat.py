"""Messages of conversations, independent of providers: turns, their parts, requests and replies of models.

history = [callboard.chat.UserTurn("My name is Ada."), callboard.chat.AssistantTurn("Hello, Ada.")]
outcome = await root.run(agent, "What is my name?", history=history)
"""

from __future__ import annotations

from .protocol.chat import (
    AssistantTurn,
    ChatReply,
    ChatRequest,
    Content,
    Delta,
    FilePart,
    ImagePart,
    Part,
    ReasoningDelta,
    ReasoningEffort,
    Restarted,
    Role,
    StopReason,
    TextDelta,
    TextPart,
    ThinkingBudget,
    Thought,
    TokenUsage,
    Tool,
    ToolCall,
    ToolCallDelta,
    ToolTurn,
    Turn,
    UserTurn,
    parts_of,
    text_of,
)

__all__ = [
    "AssistantTurn",
    "ChatReply",
    "ChatRequest",
    "Content",
    "Delta",
    "FilePart",
    "ImagePart",
    "Part",
    "ReasoningDelta",
    "ReasoningEffort",
    "Restarted",
    "Role",
    "StopReason",
    "TextDelta",
    "TextPart",
    "ThinkingBudget",
    "Thought",
    "TokenUsage",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolTurn",
    "Turn",
    "UserTurn",
    "parts_of",
    "text_of",
]
