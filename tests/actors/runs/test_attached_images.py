"""Images and files beside the prompt of an LLM agent: `files` and `attach` of a request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.fake_models import FakeModels

import callboard
from callboard.protocol.errors import Unsupported, UsageError

PNG = b"\x89PNG\r\n\x1a\n...."
JPEG = b"\xff\xd8\xff\xe0...."
CLERK = callboard.Agent(name="clerk", instructions="Help.", can_ask_user=False)


async def shown(fake_model: FakeModels, home: Path, prompt: str = "what?", **more: Any) -> list[str]:
    """The parts of the message that the model got, each by its kind and how it begins."""
    (home / "config.yaml").write_text(
        f"model: lab:m\nclients:\n- {{type: openai-compatible, name: lab, api_base: '{fake_model.openai_base}'}}\n"
    )
    fake_model.answer_with(lambda _: "fine")
    await callboard.run(CLERK, prompt, config_dir=home, **more)
    content = fake_model.requests[-1].json["messages"][-1]["content"]
    if isinstance(content, str):
        return [content]
    found = []
    for part in content:
        value = part[part["type"]]
        found.append(value if isinstance(value, str) else value.get("url", value.get("file_data", ""))[:24])
    return found


@pytest.mark.parametrize("key", ["files", "attach"])
async def test_an_image_reaches_the_model_by_its_bytes(fake_model: FakeModels, tmp_path: Path, key: str) -> None:
    (tmp_path / "a.png").write_bytes(JPEG)
    (tmp_path / "bare").write_bytes(PNG)
    given = {key: [str(tmp_path / "a.png"), str(tmp_path / "bare")]}
    assert await shown(fake_model, tmp_path, **given) == [
        "what?", "data:image/jpeg;base64,/", "data:image/png;base64,iV",
    ]  # fmt: skip


async def test_a_glob_stands_for_its_images_and_texts_stay_texts(fake_model: FakeModels, tmp_path: Path) -> None:
    for name, data in (("a.png", PNG), ("b.png", PNG), ("note.txt", b"hello there")):
        (tmp_path / name).write_bytes(data)
    text, *images = await shown(fake_model, tmp_path, files=[str(tmp_path / "*.png"), str(tmp_path / "note.txt")])
    assert "hello there" in text
    assert images == ["data:image/png;base64,iV"] * 2


async def test_an_attachment_needs_no_prompt(fake_model: FakeModels, tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.4")
    assert await shown(fake_model, tmp_path, prompt="", attach=[str(tmp_path / "a.pdf")]) == [
        "data:application/pdf;bas"
    ]


async def test_a_model_without_vision_refuses_them(fake_model: FakeModels, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "config.yaml").write_text(
        f"model: lab:m\nclients:\n- {{type: openai-compatible, name: lab, api_base: '{fake_model.openai_base}',\n"
        "   models: [{name: m, supports_vision: false}]}\n"
    )
    outcome = await callboard.run(CLERK, "what?", config_dir=tmp_path, files=[str(tmp_path / "a.png")])
    assert outcome.error is not None
    assert outcome.error.code == Unsupported.code


async def test_a_graph_takes_no_attachments(tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text("name: g\nstart: d\nnodes:\n  d: {type: end, output: ok}\n")
    (tmp_path / "a.png").write_bytes(PNG)
    with pytest.raises(UsageError):
        await callboard.run(str(tmp_path / "g.yaml"), "x", config_dir=tmp_path, attach=[str(tmp_path / "a.png")])
