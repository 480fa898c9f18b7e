"""Several models in one text, and in files as a list."""

from __future__ import annotations

import jsonschema
import pytest

from callboard.protocol.agent import agent_schema, read_agent
from callboard.protocol.chat import models_of
from callboard.protocol.settings import json_schema, read_settings


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("openai:gpt-4o", ["openai:gpt-4o"]),
        ("openai:a,claude:b", ["openai:a", "claude:b"]),
        (" openai:a , claude:b ", ["openai:a", "claude:b"]),
        ("openai,claude", ["openai", "claude"]),
        ("a:x,a:x,b:y", ["a:x", "b:y"]),
        ("a:x,", ["a:x", ""]),
        ("local:/models/a,b.gguf", ["local:/models/a,b.gguf"]),
        ("local:/models/a.gguf,openai", ["local:/models/a.gguf", "openai"]),
        ("local:/m/a,b.gguf,openai:x", ["local:/m/a,b.gguf", "openai:x"]),
        ("local:smollm2,openai", ["local:smollm2", "openai"]),
        ("bedrock:arn:aws:bedrock:eu-1:1:x/y,openai:z", ["bedrock:arn:aws:bedrock:eu-1:1:x/y", "openai:z"]),
    ],
)
def test_commas_part_models_and_belong_to_paths_of_weights(text: str, names: list[str]) -> None:
    assert list(models_of(text)) == names


def test_a_list_in_a_file_is_the_text_with_commas() -> None:
    agent, problems = read_agent("name: a\nmodel: [openai:x, claude:y]\nsummarization_model: [a:b]\n", "a.yaml")
    assert not problems
    assert agent is not None
    assert (agent.model, agent.summarization_model) == ("openai:x,claude:y", "a:b")
    settings, problems = read_settings("model:\n  - ${FIRST}\n  - claude:y\n", "config.yaml", {"FIRST": "openai:x"})
    assert not problems
    assert settings.model == "openai:x,claude:y"
    assert read_settings("", "c", {"CALLBOARD_MODEL": "a:b,c:d"})[0].model == "a:b,c:d"


@pytest.mark.parametrize(
    ("written", "key", "line", "words"),
    [
        ("[]", "model", 2, "write text, or a list of texts"),
        ("[openai:x, 4]", "model[1]", 2, "put quotes around it"),
        ("[openai:x, '']", "model[1]", 2, "a text that is not empty"),
        ("{a: b}", "model", 2, "write text, or a list of texts"),
    ],
)
def test_what_is_no_list_of_models_is_an_error_with_its_place(written: str, key: str, line: int, words: str) -> None:
    _, [problem] = read_agent(f"name: a\nmodel: {written}\n", "a.yaml")
    assert (problem.severity, problem.key, problem.line) == ("error", key, line)
    assert words in (problem.hint or "")


@pytest.mark.parametrize("schema", [agent_schema(), json_schema()], ids=["agent", "settings"])
def test_editors_know_lists_of_models(schema: dict[str, object]) -> None:
    def valid(model: object) -> bool:
        return jsonschema.Draft202012Validator(schema).is_valid({"name": "a", "model": model})

    assert [valid(model) for model in ("a:b", ["a:b", "c:d"], [], [1], 4)] == [True, True, False, False, False]
