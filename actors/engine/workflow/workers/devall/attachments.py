"""Replacement for DevAll's `utils.attachments`: files of a run that messages can refer to by id."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import mimetypes
import shutil
import typing
import uuid
from pathlib import Path

from entity.messages import AttachmentRef, MessageBlock, MessageBlockType

Json = typing.Dict[str, typing.Any]
Place = typing.Union[Path, str]
Text = typing.Optional[str]

UNKNOWN = "application/octet-stream"


@dataclasses.dataclass
class AttachmentRecord:
    """Metadata of a stored file."""

    ref: AttachmentRef
    kind: MessageBlockType = MessageBlockType.FILE
    description: Text = None
    extra: Json = dataclasses.field(default_factory=dict)

    def to_dict(self) -> Json:
        return {
            "ref": self.ref.to_dict(),
            "kind": self.kind.value,
            "description": self.description,
            "extra": self.extra,
        }

    @classmethod
    def from_dict(cls, data: Json) -> AttachmentRecord:
        return cls(
            ref=AttachmentRef.from_dict(data.get("ref") or {}),
            kind=MessageBlockType(data.get("kind") or "file"),
            description=data.get("description"),
            extra=data.get("extra") or {},
        )

    def as_message_block(self) -> MessageBlock:
        return MessageBlock(type=self.kind, attachment=self.ref.copy(), data=dict(self.extra))


class AttachmentStore:
    """Files of a run. Persistent ones are listed in `attachments_manifest.json`."""

    def __init__(self, root_dir: Place) -> None:
        self.root = Path(root_dir)
        self.root.mkdir(parents=True, exist_ok=True)
        self.manifest_path = self.root / "attachments_manifest.json"
        self._records: typing.Dict[str, AttachmentRecord] = {}
        self._lasting: typing.Set[str] = set()
        self._read_manifest()

    def register_file(
        self,
        file_path: Place,
        *,
        kind: MessageBlockType = MessageBlockType.FILE,
        display_name: Text = None,
        mime_type: Text = None,
        attachment_id: Text = None,
        copy_file: bool = True,
        description: Text = None,
        extra: typing.Optional[Json] = None,
        persist: bool = True,
        deduplicate: bool = False,
    ) -> AttachmentRecord:
        """Add a file, by default as a copy in the store's directory; return its record.

        With `deduplicate`, a file of equal content that was added before is returned instead. Raises
        `FileNotFoundError` if the file does not exist.
        """
        source = Path(file_path)
        if not source.exists():
            raise FileNotFoundError(f"Attachment source not found: {source}")
        digest = _digest(source)
        # A copy can be replaced by any file of equal content, a reference only by one to the same path.
        known = self._same(digest, None if copy_file else source) if deduplicate else None
        if known is not None:
            return known
        id = attachment_id or uuid.uuid4().hex
        target = source.resolve()
        if copy_file:
            target = self.root / id / source.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
        ref = AttachmentRef(
            attachment_id=id,
            mime_type=mime_type or mimetypes.guess_type(source.name)[0] or UNKNOWN,
            name=display_name or source.name,
            size=target.stat().st_size,
            sha256=digest,
            local_path=str(target),
        )
        return self._keep(AttachmentRecord(ref, kind, description, dict(extra or {})), persist)

    def register_bytes(
        self,
        data: bytes,
        *,
        kind: MessageBlockType = MessageBlockType.FILE,
        mime_type: Text = None,
        display_name: Text = None,
        attachment_id: Text = None,
        description: Text = None,
        extra: typing.Optional[Json] = None,
        persist: bool = True,
    ) -> AttachmentRecord:
        """Write bytes to a file, and add it."""
        id = attachment_id or uuid.uuid4().hex
        name = display_name or "attachment" + (mimetypes.guess_extension(mime_type or UNKNOWN) or ".bin")
        target = self.root / id / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        return self.register_file(
            target,
            kind=kind,
            display_name=name,
            mime_type=mime_type,
            attachment_id=id,
            copy_file=False,
            description=description,
            extra=extra,
            persist=persist,
        )

    def get(self, attachment_id: str) -> typing.Optional[AttachmentRecord]:
        """Return the record with this id, or None."""
        return self._records.get(attachment_id)

    def to_message_block(self, attachment_id: str) -> MessageBlock:
        """Return the file as a block of a message; raise `KeyError` for an unknown id."""
        record = self.get(attachment_id)
        if record is None:
            raise KeyError(f"Attachment '{attachment_id}' not found")
        return record.as_message_block()

    def list_records(self) -> typing.Dict[str, AttachmentRecord]:
        return dict(self._records)

    def export_manifest(self) -> Json:
        """Return the persistent records as JSON."""
        return {id: record.to_dict() for id, record in self._records.items() if id in self._lasting}

    def _keep(self, record: AttachmentRecord, persist: bool) -> AttachmentRecord:
        self._records[record.ref.attachment_id] = record
        if persist:
            self._lasting.add(record.ref.attachment_id)
            self.manifest_path.write_text(json.dumps(self.export_manifest(), ensure_ascii=False), encoding="utf-8")
        return record

    def _same(self, digest: str, source: typing.Optional[Path]) -> typing.Optional[AttachmentRecord]:
        for record in self._records.values():
            path = record.ref.local_path
            if record.ref.sha256 == digest and (source is None or (path and Path(path).resolve() == source.resolve())):
                return record
        return None

    def _read_manifest(self) -> None:
        try:
            found = json.loads(self.manifest_path.read_text(encoding="utf-8"))
            records = {id: AttachmentRecord.from_dict(data) for id, data in found.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return  # no manifest, or one of another program
        self._records.update(records)
        self._lasting.update(records)


def _digest(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while data := opened.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()
