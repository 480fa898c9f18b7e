"""A user with a home and a repository of somebody's, in which runs work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import callboard
from callboard.actors.work import trust
from callboard.protocol.outcome import Outcome
from support.fake_models import FakeModels, Reply

SKILL = """---
name: {name}
description: {description}
{more}---
{text}
"""


class Repository:
    """See the module.

    Attributes:
        root: of the repository, which is the working directory.
        home, config: the user's.
        models: the model server.
        warnings: what runs have warned of.
    """

    def __init__(self, base: Path, models: FakeModels, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = base / "home"
        self.root = base / "repository"
        for directory in (self.home, self.root / ".git"):
            directory.mkdir(parents=True)
        self.models = models
        self.config = models.config_dir(base / "config")
        self.warnings: list[str] = []
        monkeypatch.setenv("HOME", str(self.home))
        monkeypatch.chdir(self.root)

    def settings(self, **more: object) -> None:
        """More keys of config.yaml."""
        file = self.config / "config.yaml"
        file.write_text(json.dumps({**json.loads(file.read_text()), **more}))

    def write(self, name: str, text: str, *, executable: bool = False) -> Path:
        """A file of the repository."""
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if executable:
            file.chmod(0o755)
        return file

    def skill(self, name: str, *, below: str = ".agents/skills", text: str = "Do it well.", more: str = "") -> Path:
        """A skill of the repository."""
        whole = SKILL.format(name=name, description=f"What {name} is for.", text=text, more=more)
        return self.write(f"{below}/{name}/SKILL.md", whole).parent

    def agent(self, text: str = "", name: str = "a") -> None:
        """An agent of the user's, with these lines besides its name."""
        directory = self.config / "agents" / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.yaml").write_text(f"name: {name}\ncan_ask_user: false\n{text}\n")

    def trust(self) -> None:
        """Trust the repository as it is."""
        import os

        trust.keep(trust.as_it_is(self.root), os.environ)

    async def run(self, *replies: Reply | str, target: str = "a", **options: object) -> Outcome:
        """Play the agent with these replies of its model."""
        self.models.script(*replies)

        def hear(event: callboard.Event) -> None:
            if event.kind == "run.warning":
                self.warnings.append(event.data.message)  # type: ignore[attr-defined]

        given = {"on_event": hear, **options}
        if "root" not in given:
            given["config_dir"] = self.config
        return await callboard.run(target, "go", **given)  # type: ignore[arg-type]

    @property
    def system(self) -> str:
        """The system prompt of the last request."""
        return str(self.models.requests[-1].system)

    @property
    def told(self) -> str:
        """The result of the last call."""
        return str(self.models.requests[-1].results[-1])
