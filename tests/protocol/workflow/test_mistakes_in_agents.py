"""Mistakes in agents, their tools and memories."""

from __future__ import annotations

import pytest
from support.workflow_files import GOOD, KNOWN, Mistake, check

from callboard.protocol.workflow import read_workflow

MISTAKES = {
    # agents
    "no provider": Mistake("        provider: gemini\n", "", "missing_key", "name: ${MODEL}", "`provider`, `name`"),
    "unknown provider": Mistake(
        "provider: gemini", "provider: gemni", "unknown_provider", "provider: gemni", "did you mean 'gemini'?"
    ),
    "fallback of an unknown provider": Mistake(
        "provider: gemini",
        "provider: gemini\n        fallback_models: [openai:gpt-4o, gemni:flash]",
        "unknown_provider",
        "fallback_models",
        "did you mean 'gemini'?",
    ),
    "fallback that is an agent": Mistake(
        "provider: gemini",
        "provider: gemini\n        fallback_models: callboard:helper",
        "unknown_provider",
        "fallback_models",
        "one of gemini, openai before the colon",
    ),
    "fallback without a provider": Mistake(
        "provider: gemini",
        "provider: gemini\n        fallback_models: gpt-4o",
        "unknown_model",
        "fallback_models",
        "write `openai:gpt-4o-mini`",
    ),
    "temperature of nobody": Mistake(
        "        params:\n          temperature: 0.3",
        "        temperature: 0.3",
        "unknown_key",
        "temperature: 0.3",
        "under `params:`",
        "warning",
    ),
    "mode of input": Mistake(
        "input_mode: messages",
        "input_mode: message",
        "unknown_value",
        "input_mode: message",
        "did you mean 'messages'?",
    ),
    "protocol": Mistake(
        "          temperature: 0.3",
        "          temperature: 0.3\n          protocol: responses",
        "unused_key",
        "protocol: responses",
        "chat interface",
        "warning",
    ),
    "functions that are not loaded": Mistake(
        "              tools:\n                - name: get_weather",
        "              auto_load: false\n              tools:\n                - name: get_weather",
        "unused_key",
        "auto_load: false",
        "remove it",
        "warning",
    ),
    "parameters of vectors": Mistake(
        "          base_url: ${BASE_URL}\n    - name: style_guide",
        "          base_url: ${BASE_URL}\n          params: {max_length: 8191}\n    - name: style_guide",
        "unused_key",
        "params: {max_length: 8191}",
        "remove it",
        "warning",
    ),
    "encoding of documents": Mistake(
        "            file_types: [.md]",
        "            file_types: [.md]\n            encoding: latin-1",
        "unused_key",
        "encoding: latin-1",
        "is detected",
        "warning",
    ),
    "cache_ttl of a local server": Mistake(
        "args: [mcp-server-time]",
        "args: [mcp-server-time]\n              cache_ttl: 60",
        "unused_key",
        "cache_ttl: 60",
        "remove it",
        "warning",
    ),
    "cache_ttl of a remote server": Mistake(
        "headers: {Authorization: Bearer x}",
        "headers: {Authorization: Bearer x}\n              cache_ttl: 60",
        "unused_key",
        "cache_ttl: 60",
        "remove it",
        "warning",
    ),
    "tool_sources": Mistake(
        "headers: {Authorization: Bearer x}",
        "headers: {Authorization: Bearer x}\n              tool_sources: [tools]",
        "unused_key",
        "tool_sources: [tools]",
        "remove it",
        "warning",
    ),
    "tool as a text": Mistake(
        "- name: get_weather", "- get_weather", "wrong_type", "- get_weather", "- name: get_weather"
    ),
    "unknown tool": Mistake(
        "name: get_weather", "name: get_wether", "unknown_function", "get_wether", "did you mean 'get_weather'?"
    ),
    "tool twice": Mistake(
        "- name: get_weather",
        "- name: get_weather\n                - name: weather:All",
        "duplicate_tool",
        "weather:All",
        "remove one",
    ),
    "no such tooling": Mistake("type: mcp_local", "type: mcp", "unknown_type", "type: mcp", "mcp_local"),
    "thinking of nothing": Mistake(
        "            reflection_prompt: Is every claim supported?",
        "            prompt: Is it?",
        "missing_key",
        "prompt: Is it?",
        "reflection_prompt",
        also=("unknown_key",),
    ),
    "waits the wrong way round": Mistake(
        "max_wait_seconds: 2", "max_wait_seconds: 0.1", "out_of_range", "max_wait_seconds: 0.1", "1 and 6"
    ),
    "attempts in quotes": Mistake(
        "max_attempts: 2", 'max_attempts: "2"', "wrong_type", 'max_attempts: "2"', "a whole number"
    ),
    "attempts and a half": Mistake(
        "max_attempts: 2", "max_attempts: 2.5", "wrong_type", "max_attempts: 2.5", "a whole number"
    ),
    "attempts of none": Mistake("max_attempts: 2", "max_attempts: 0", "out_of_range", "max_attempts: 0", "at least 1"),
    "tooling as a mapping": Mistake(
        "        provider: gemini",
        "        provider: gemini\n        tooling: {type: function}",
        "wrong_type",
        "tooling: {",
        "put a dash",
    ),
    "store on an agent": Mistake(
        "        provider: gemini",
        "        provider: gemini\n        memory: x",
        "unknown_key",
        "memory: x",
        "did you mean 'memories'?",
        "warning",
    ),
    # memories
    "unknown store": Mistake(
        "          - name: style_guide\n            read",
        "          - name: styleguide\n            read",
        "unknown_store",
        "name: styleguide",
        "did you mean 'style_guide'?",
    ),
    "two stores of one name": Mistake(
        "    - name: remarks\n      type",
        "    - name: style_guide\n      type",
        "duplicate_store",
        "name: style_guide",
        "rename",
        also=("unknown_store",),
    ),
    "store of nobody": Mistake(
        "          - name: remarks\n            read: true\n            write: true\n    - id: gate",
        "          - name: past_articles\n            read: true\n    - id: gate",
        "unused_store",
        "- name: remarks",
        "attach it",
        "warning",
    ),
    "memory for nothing": Mistake(
        "            read: true\n            write: false",
        "            read: false",
        "idle_memory",
        "- name: style_guide",
        "read: true",
        "warning",
    ),
    "stage": Mistake(
        "retrieve_stage: [gen]", "retrieve_stage: [generate]", "unknown_value", "retrieve_stage: [generate]", "gen"
    ),
    "the guide's stage": Mistake(
        "retrieve_stage: [gen]",
        "retrieve_stage: [post_gen]",
        "other_spelling",
        "post_gen",
        "post_gen_thinking",
        "warning",
    ),
    "store of no kind": Mistake(
        "type: blackboard", "type: whiteboard", "unknown_type", "type: whiteboard", "blackboard"
    ),
    "files of none": Mistake(
        "        file_sources:\n          - path: docs/\n            file_types: [.md]",
        "        file_sources: []",
        "missing_key",
        "file_sources: []",
        "path: docs/",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_found_on_its_line_with_the_way_to_mend_it(mistake: Mistake) -> None:
    check(mistake)


def test_a_provider_that_nobody_knows_is_one_if_it_says_where_it_is() -> None:
    text = GOOD.replace("provider: gemini", "provider: my-lab\n        base_url: http://lab/v1")
    workflow, problems = read_workflow(text, "newsroom.yaml", known=KNOWN)
    assert workflow is not None
    assert not problems


def test_what_an_agent_of_ours_says_itself_is_not_said_here() -> None:
    text = GOOD.replace(
        "provider: gemini", "provider: callboard\n        params: {seed: 1}\n        fallback_models: openai:m"
    )
    _, problems = read_workflow(text, "newsroom.yaml", known=KNOWN)
    warned = [problem.message for problem in problems if problem.code == "unused_key"]
    for key in ("params", "fallback_models"):
        assert any(f"`{key}` has no effect with `provider: callboard`" in message for message in warned)
