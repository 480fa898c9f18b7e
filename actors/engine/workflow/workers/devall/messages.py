"""Replacement for DevAll's `entity.messages`: classes from which functions build messages."""

from __future__ import annotations

import dataclasses
import enum
import typing

Json = typing.Dict[str, typing.Any]
Text = typing.Optional[str]


class MessageRole(str, enum.Enum):
    """Role of a message's author."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class MessageBlockType(str, enum.Enum):
    """Content type of a block."""

    TEXT = "text"
    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    FILE = "file"
    DATA = "data"

    @classmethod
    def from_mime_type(cls, mime_type: str) -> MessageBlockType:
        """Return the type for the first word of a media type."""
        first = (mime_type or "").partition("/")[0]
        return cls(first) if first in ("image", "audio", "video") else cls.FILE


@dataclasses.dataclass
class AttachmentRef:
    """Reference from a message to a file."""

    attachment_id: str
    mime_type: Text = None
    name: Text = None
    size: typing.Optional[int] = None
    sha256: Text = None
    local_path: Text = None
    remote_file_id: Text = None
    data_uri: Text = None
    metadata: Json = dataclasses.field(default_factory=dict)

    def to_dict(self, include_data: bool = True) -> Json:
        """Return the reference as JSON, without fields that are None or empty; `include_data` keeps the data URI."""
        found = {key: value for key, value in dataclasses.asdict(self).items() if value not in (None, {})}
        if "data_uri" in found and not include_data:
            found["data_uri"] = "[omitted]"
        return found

    @classmethod
    def from_dict(cls, data: Json) -> AttachmentRef:
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{"attachment_id": "", **{key: value for key, value in data.items() if key in known}})

    def copy(self) -> AttachmentRef:
        return dataclasses.replace(self, metadata=dict(self.metadata))


@dataclasses.dataclass
class MessageBlock:
    """Part of a message: text, or an attachment."""

    type: MessageBlockType
    text: Text = None
    attachment: typing.Optional[AttachmentRef] = None
    data: Json = dataclasses.field(default_factory=dict)

    @classmethod
    def text_block(cls, text: str) -> MessageBlock:
        return cls(type=MessageBlockType.TEXT, text=text)

    @classmethod
    def from_dict(cls, data: Json) -> MessageBlock:
        kind = data.get("type") or "text"
        there = data.get("attachment")
        return cls(
            type=MessageBlockType(kind) if kind in [each.value for each in MessageBlockType] else MessageBlockType.DATA,
            text=data.get("text"),
            attachment=AttachmentRef.from_dict(there) if isinstance(there, dict) else None,
            data=data.get("data") or {},
        )

    def to_dict(self, include_data: bool = True) -> Json:
        found: Json = {"type": self.type.value}
        if self.text is not None:
            found["text"] = self.text
        if self.attachment is not None:
            found["attachment"] = self.attachment.to_dict(include_data=include_data)
        if self.data:
            found["data"] = self.data
        return found

    def describe(self) -> str:
        """Return the text, or a placeholder for other content."""
        if self.text:
            return self.text
        if self.attachment is not None:
            return f"[{self.type.value} attachment: {self.attachment.name or self.attachment.attachment_id}]"
        return str(self.data.get("text", f"[{self.type.value} block]"))

    def copy(self) -> MessageBlock:
        attachment = None if self.attachment is None else self.attachment.copy()
        return dataclasses.replace(self, attachment=attachment, data=dict(self.data))


@dataclasses.dataclass
class Message:
    """Message of a node or model."""

    role: MessageRole
    content: typing.Any
    name: Text = None
    tool_call_id: Text = None
    metadata: Json = dataclasses.field(default_factory=dict)
    tool_calls: typing.List[typing.Any] = dataclasses.field(default_factory=list)
    keep: bool = False
    preserve_role: bool = False

    def blocks(self) -> typing.List[MessageBlock]:
        if self.content is None:
            return []
        if isinstance(self.content, str):
            return [MessageBlock.text_block(self.content)]
        return [MessageBlock.from_dict(each) if isinstance(each, dict) else each for each in self.content]

    def text_content(self) -> str:
        """Return the content as one text."""
        return "\n".join(text for text in (block.describe() for block in self.blocks()) if text)

    def with_content(self, content: typing.Any) -> Message:
        return dataclasses.replace(self, content=content, metadata=dict(self.metadata))

    def with_role(self, role: MessageRole) -> Message:
        return dataclasses.replace(self, role=role, metadata=dict(self.metadata))

    def clone(self) -> Message:
        """Return a deep copy."""
        content = self.content if isinstance(self.content, str) else [block.copy() for block in self.blocks()]
        return dataclasses.replace(self, content=content, metadata=dict(self.metadata))
