"""What is written: a file for one model, and lines put into a file that is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import says

from callboard.actors.io.environment import read_dotenv
from callboard.actors.runs.setup.detect import UsableProvider, of_provider
from callboard.actors.runs.setup.write_config import (
    add_to_env_file,
    new_config,
    quoted,
    scalar,
    with_model,
    write_config,
)
from callboard.protocol.errors import Conflict, NotKept
from callboard.protocol.settings import ClientSettings, read_settings

GROQ = of_provider("groq", {}, why="")
STUDIO = UsableProvider(
    client=ClientSettings(type="openai-compatible", name="lmstudio", api_base="http://127.0.0.1:1234/v1"),
    title="LM Studio",
    why="",
    models=("qwen3-8b",),
)
LOKIS = """\
# see https://github.com/.../config.example.yaml
model: openai:gpt-4o             # Specify the LLM to use
temperature: null                # Set default temperature parameter (0, 1)

keybindings: emacs
clients:
  # All clients have the following configuration:
  # - type: xxxx
  #   name: xxxx                                      # Only use it to distinguish clients with the same client type

  # See https://platform.openai.com/docs/quickstart
  - type: openai
    api_base: https://api.openai.com/v1               # Optional
    api_key: '{{OPENAI_API_KEY}}'

  - type: openai-compatible
    name: local
    api_base: http://localhost:8080/v1
    models:
      - name: llama3.1
        max_input_tokens: 128000
"""


def read(text: str) -> tuple[str, dict[str, ClientSettings]]:
    settings, problems = read_settings(text, "config.yaml", {})
    assert not [problem for problem in problems if problem.severity == "error"]
    return settings.model, {client.name: client for client in settings.clients}


def test_a_provider_that_is_known_needs_no_entry() -> None:
    text = new_config(GROQ, "openai/gpt-oss-120b")
    assert read(text) == ("groq:openai/gpt-oss-120b", {})
    assert "clients" not in text
    assert "GROQ_API_KEY" in text


def test_a_server_has_an_entry_and_so_has_a_key_of_the_vault() -> None:
    model, clients = read(new_config(STUDIO, "qwen3-8b"))
    assert (model, clients) == ("lmstudio:qwen3-8b", {"lmstudio": STUDIO.client})
    model, clients = read(new_config(GROQ, "m", "{{GROQ_API_KEY}}"))
    assert (model, clients["groq"].api_key) == ("groq:m", "{{GROQ_API_KEY}}")


FILES = {
    "empty": "",
    "comments alone": "# nothing yet\n",
    "no newline at the end": "temperature: 0.1",
    "no model": "# mine\n\ntemperature: 0.1  # cool\nclients:\n  - type: openai\n",
    "items at the margin": "model: a:b\nclients:\n- type: openai\n  api_key: x\nstream: false\n",
    "deep items": "clients:\n      - type: openai\n        models:\n          - name: x\n\n\nstream: false\n# end\n",
    "no clients": "model:   'a:b'  # old\nstream: false\n",
    "a block of text behind": "clients:\n  - type: openai\nrag_template: |\n  clients:\n    - no\n",
    "a document mark": "---\nmodel: a:b\n",
    "as Loki's own example": LOKIS,
}


@pytest.mark.parametrize("offer", [GROQ, STUDIO], ids=["groq", "lmstudio"])
@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_a_file_that_is_there_keeps_every_line(text: str, offer: UsableProvider) -> None:
    key = "{{GROQ_API_KEY}}" if offer is GROQ else ""
    changed = with_model(text, offer, "m", key)
    model, clients = read(changed)
    _, before = read(text) if text.strip() else ("", {})
    assert model == f"{offer.client.name}:m"
    assert clients.keys() == before.keys() | {offer.client.name}
    assert all(clients[name] == client for name, client in before.items())
    left = iter(changed.split("\n"))
    kept = [line for line in text.split("\n") if line.strip() and not line.startswith("model:")]
    assert all(line in left for line in kept)  # in this order
    assert with_model(changed, offer, "m", key) == changed


def test_the_comment_behind_the_model_stays() -> None:
    assert "model: groq:m             # Specify the LLM to use\n" in with_model(LOKIS, GROQ, "m")


@pytest.mark.parametrize("text", ["clients: [{type: openai}]\n", "{model: a:b}\n", "model: [a:b, c:d]\nmodel: x:y\n"])
def test_what_can_not_be_added_to_is_left_alone_and_said(text: str) -> None:
    with pytest.raises(Conflict, match=r"add this by hand:\nmodel: lmstudio:m\nclients:\n- type: openai-comp"):
        with_model(text, STUDIO, "m")


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=40))
def test_any_name_of_a_model_is_read_as_it_was(name: str) -> None:
    text = f"clients:\n  - type: ollama\n    models: [{scalar(name)}]\n"
    _, clients = read(text)
    assert clients["ollama"].models[0].name == name


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=40))
def test_any_value_of_a_variable_is_read_as_it_was(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    file = tmp_path_factory.getbasetemp() / "a.env"
    file.write_text(f"A={quoted(value)}\n", encoding="utf-8")
    assert read_dotenv(file) == {"A": value}


def test_files_are_for_their_owner_and_a_link_stays_one(tmp_path: Path) -> None:
    file = tmp_path / "new" / "config.yaml"
    write_config(file, "a")
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    file.chmod(0o644)
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    write_config(link, "b")
    assert (link.is_symlink(), file.read_text(), file.stat().st_mode & 0o777) == (True, "b", 0o644)
    env = tmp_path / ".env"
    env.write_text("A=1")
    add_to_env_file(env, "B", "two words")
    assert env.read_text() == 'A=1\nB="two words"\n'
    assert env.stat().st_mode & 0o777 == 0o600
    assert [*file.parent.iterdir()] == [file]


def test_lines_end_as_they_did(tmp_path: Path) -> None:
    for before, after in ((b"a: 1\r\n", b"b: 1\r\nc: 2\r\n"), (b"a: 1\n", b"b: 1\nc: 2\n"), (b"", b"b: 1\nc: 2\n")):
        (tmp_path / "config.yaml").write_bytes(before)
        write_config(tmp_path / "config.yaml", "b: 1\nc: 2\n")
        assert (tmp_path / "config.yaml").read_bytes() == after
    (tmp_path / ".env").write_bytes(b"A=1\r\n")
    add_to_env_file(tmp_path / ".env", "B", "2")
    assert (tmp_path / ".env").read_bytes() == b"A=1\r\nB=2\r\n"


def test_a_disk_that_refuses_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotKept, match=says("runs.setup.write_config.write_config")):
        write_config(tmp_path / "file" / "config.yaml", "a")
