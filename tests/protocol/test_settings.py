"""config.yaml and the CALLBOARD_* variables."""

from __future__ import annotations

import jsonschema
import pytest
from support.messages import has_message

from callboard.protocol.permissions import PermissionRule
from callboard.protocol.problems import errors_in
from callboard.protocol.settings import ClientSettings, Extra, ModelSettings, Settings, json_schema, read_settings
from callboard.protocol.settings.model import DurableSettings

FULL = """\
model: lab:big
temperature: 0.2
top_p: 1
stream: false
save: false
keybindings: vi
mapping_tools:
  fs: fs_cat,fs_ls
clients:
  - type: openai-compatible
    name: lab
    api_base: http://lab/v1
    api_key: ${LAB_KEY}
    models:
      - name: big
        max_input_tokens: 128000
        input_price: 1
        output_price: 2.5
        supports_function_calling: true
      - small
    extra:
      proxy: http://proxy:3128
      connect_timeout: 3
"""


def test_a_full_file_is_read() -> None:
    settings, problems = read_settings(FULL, "config.yaml", {"LAB_KEY": "secret"})
    assert problems == []
    assert settings == Settings(
        model="lab:big",
        model_from="config.yaml",
        temperature=0.2,
        top_p=1.0,
        stream=False,
        clients=(
            ClientSettings(
                type="openai-compatible",
                name="lab",
                api_base="http://lab/v1",
                api_key="secret",
                models=(
                    ModelSettings(name="big", max_input_tokens=128000, input_price=1.0, output_price=2.5),
                    ModelSettings(name="small"),
                ),
                extra=Extra(proxy="http://proxy:3128", connect_timeout=3.0),
            ),
        ),
        mapping_tools={"fs": "fs_cat,fs_ls"},
        other={"save": False, "keybindings": "vi"},
    )


def test_what_is_said_about_knowledge_is_read() -> None:
    text = """
rag_embedding_model: openai:text-embedding-3-small
rag_chunk_size: 800
rag_chunk_overlap: 0
rag_language: "no"
rag_top_k: 3
rag_template: "__CONTEXT__ __INPUT__"
rag_private_pages: true
document_loaders:
  pdf: pdftotext $1 -
"""
    settings, problems = read_settings(text, "config.yaml", {"CALLBOARD_RAG_TOP_K": "9"})
    assert problems == []
    assert settings == Settings(
        rag_embedding_model="openai:text-embedding-3-small",
        rag_chunk_size=800,
        rag_chunk_overlap=0,
        rag_language="no",
        rag_top_k=9,
        rag_template="__CONTEXT__ __INPUT__",
        rag_private_pages=True,
        document_loaders={"pdf": "pdftotext $1 -"},
    )


@pytest.mark.parametrize(
    "line",
    ["rag_chunk_size: 0", "rag_top_k: 0", "rag_chunk_overlap: -1", "rag_language: German", "document_loaders: x"],
)
def test_what_makes_no_sense_is_an_error(line: str) -> None:
    _, [problem] = read_settings(line, "config.yaml", {})
    assert (problem.severity, problem.line) == ("error", 1)


def test_a_size_of_the_environment_that_makes_no_sense_is_an_error() -> None:
    _, [problem] = read_settings("", "config.yaml", {"CALLBOARD_RAG_CHUNK_SIZE": "0"})
    assert (problem.key, problem.expected) == ("CALLBOARD_RAG_CHUNK_SIZE", "a whole number of at least 1")


@pytest.mark.parametrize("text", ["", "# nothing\n", "model:\nclients:\n"])
def test_an_empty_file_means_the_defaults(text: str) -> None:
    assert read_settings(text, "config.yaml", {}) == (Settings(), [])


def test_the_environment_wins_over_the_file() -> None:
    environ = {
        "CALLBOARD_MODEL": "x:y",
        "CALLBOARD_TEMPERATURE": "0.7",
        "CALLBOARD_STREAM": "true",
        "CALLBOARD_SAVE": "1",
    }
    settings, problems = read_settings(FULL, "config.yaml", {"LAB_KEY": "k", **environ})
    assert problems == []
    assert (settings.model, settings.model_from) == ("x:y", "CALLBOARD_MODEL")
    assert (settings.temperature, settings.stream, settings.other["save"]) == (0.7, True, True)


def test_an_empty_variable_counts_as_not_set() -> None:
    assert read_settings("model: a:b\n", "c", {"CALLBOARD_MODEL": ""})[0].model == "a:b"


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("temperature: hot\n", (1, 14), "`temperature` is the text 'hot' (expected a number)"),
        ("stream: 3\n", (1, 9), "`stream` is the number 3 (expected true or false)"),
        ("max_output_tokens: 1.5\n", (1, 20), "expected a whole number"),
        ("clients: 5\n", (1, 10), "expected a list"),
        ("clients:\n  - name: x\n", (2, 5), "this client has no `type`"),
        ("clients:\n  - type: opena\n", (2, 11), "did you mean 'openai'?"),
        ("clients:\n  - type: mistral\n", (2, 11), "`type: openai-compatible` and `name: mistral`"),
        ("clients:\n  - type: openai\n    models:\n      - real_name: x\n", (4, 9), "this model has no `name`"),
        (
            "clients:\n  - type: openai\n    models:\n      - {name: x, type: rerank}\n",
            (4, 9),
            "unknown type 'rerank' of a model (expected one of chat, embedding, reranker",
        ),
        ("clients:\n  - type: openai\n  - type: openai\n", (3, 5), "two clients are called 'openai'"),
        ("clients:\n  - type: gemini\n    auth: saml\n", (3, 11), "oauth"),
        ("clients:\n  - type: gemini\n    oauth: {body: xml}\n", (3, 19), "form"),
        ("clients:\n  - type: gemini\n    oauth: {scopes: a b}\n", (3, 21), "a list"),
        ("- a\n", (1, 1), "a mapping at the top level"),
        ("model: [\n", (2, 1), "YAML"),
    ],
)
def test_mistakes_are_errors_with_their_place(text: str, place: tuple[int, int], words: str) -> None:
    _, (problem,) = read_settings(text, "config.yaml", {})
    assert problem.severity == "error"
    assert (problem.line, problem.column) == place
    assert words in str(problem)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("temperatur: 1\n", "unknown key 'temperatur'"),
        ("clients:\n  - type: openai\n    api_bas: x\n", "did you mean 'api_base'?"),
        ("clients:\n  - type: openai\n    extra: {prox: x}\n", "did you mean 'proxy'?"),
        (
            "clients:\n  - type: claude\n    auth: oauth\n",
            "`auth` needs an `oauth.client_id`; without it users can't sign in",
        ),
        ("clients:\n  - {type: gemini, auth: oauth, oauth: {}}\n", "needs an `oauth.client_id`"),
        ("clients:\n  - {type: gemini, auth: oauth, api_key: k, oauth: {client_id: x}}\n", "`api_key` is ignored"),
        ("clients:\n  - {type: openai, auth: oauth, name: x}\n", "for clients of type claude or anthropic or gemini"),
        ("clients:\n  - {type: gemini, oauth: {client_idd: x}}\n", "did you mean 'client_id'?"),
        ("clients:\n  - type: openai\n    api_version: v1\n", "ignored: it is for clients of type azure-openai"),
        ("clients:\n  - type: openai\n    adc_file: x\n", "ignored: it is for clients of type vertexai"),
        ("clients:\n  - type: openai\n    api_key: ${NO_SUCH}\n", "NO_SUCH, which is not set"),
        ("rag_template: '{{VAULTED}}'\n", "VAULTED, which is not set"),
    ],
)
def test_what_does_no_harm_is_a_warning(text: str, words: str) -> None:
    _, (problem,) = read_settings(text, "config.yaml", {})
    assert problem.severity == "warning"
    assert problem.line > 0
    assert words in str(problem)


def test_how_people_sign_in_is_read_with_its_references() -> None:
    text = """
clients:
  - type: claude
    name: company
    api_base: https://models.example/v1
    auth: oauth
    oauth:
      client_id: ${ID}
      client_secret: ${SECRET}
      authorization_url: https://id.example/authorize
      token_url: https://id.example/token
      scopes: [models, "${SCOPE}"]
      params: {audience: "${ID}"}
      headers: {x-team: blue}
"""
    settings, problems = read_settings(text, "config.yaml", {"ID": "me", "SECRET": "s", "SCOPE": "offline"})
    assert problems == []
    oauth = settings.clients[0].oauth
    assert oauth is not None
    assert (oauth.client_id, oauth.client_secret, oauth.scopes) == ("me", "s", ("models", "offline"))
    assert (oauth.params, oauth.headers) == ({"audience": "me"}, {"x-team": "blue"})


def test_models_for_knowledge_are_read_and_no_reason_to_warn() -> None:
    text = """
clients:
  - type: cohere
    models:
      - {name: embed-v4.0, type: embedding, max_batch_size: 96, max_tokens_per_chunk: 512, default_chunk_size: 1200}
      - {name: rerank-v3.5, type: reranker}
"""
    settings, problems = read_settings(text, "config.yaml", {})
    assert problems == []
    embedding, reranker = settings.clients[0].models
    assert (embedding.max_batch_size, embedding.max_tokens_per_chunk, embedding.default_chunk_size) == (96, 512, 1200)
    assert (embedding.type, reranker.type) == ("embedding", "reranker")


def test_all_problems_are_reported_together() -> None:
    _, problems = read_settings("temperature: hot\nstream: 3\nfoo: 1\nclients: 5\n", "c", {"CALLBOARD_TOP_P": "x"})
    assert [problem.code for problem in problems] == [
        "wrong_type",
        "wrong_type",
        "wrong_type",
        "unknown_key",
        "wrong_type",
    ]
    assert [problem.key for problem in problems] == ["CALLBOARD_TOP_P", "temperature", "stream", "foo", "clients"]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${A}", "1"),
        ("x${A}y${B}", "x1y2"),
        ("{{ A }}-$A", "{{ A }}-$A"),
        ("${C:-z}", "z"),
        ("${A:-z}", "1"),
        ("$A", "$A"),
    ],
)
def test_values_refer_to_the_environment(written: str, value: str) -> None:
    text = f"clients:\n  - type: openai\n    api_key: '{written}'\n"
    settings, _ = read_settings(text, "c", {"A": "1", "B": "2"})
    assert settings.clients[0].api_key == value


def test_a_reference_may_stand_for_a_number() -> None:
    assert read_settings("temperature: ${T}\n", "c", {"T": "0.5"})[0].temperature == 0.5


def test_a_value_that_came_from_the_environment_never_shows_in_a_problem() -> None:
    _, problems = read_settings("temperature: ${T}\n", "c", {"T": "sk-secret"})
    assert len(problems) == 1
    assert "sk-secret" not in str(problems[0])


def test_a_name_made_of_digits_stays_a_text() -> None:
    text = "clients:\n  - type: ollama\n    models:\n      - name: 4\n"
    assert read_settings(text, "c", {})[0].clients[0].models[0].name == "4"


def test_the_schema_accepts_what_the_reader_accepts() -> None:
    validator = jsonschema.Draft202012Validator(json_schema())
    good = {"model": "a:b", "clients": [{"type": "openai", "models": [{"name": "m"}], "extra": {"proxy": "-"}}]}
    assert list(validator.iter_errors(good)) == []
    assert list(validator.iter_errors({"clients": [{"type": "nonsense"}]}))
    assert list(validator.iter_errors({"temperature": "hot"}))


def test_permissions_are_read_with_their_lines() -> None:
    rules = ("fs_write: allow", "execute_command: {allow: [ls*], ask: '*'}", "fs_rm: alow", "fs_cat: {allw: x}")
    text = "permissions:\n" + "".join(f"  {rule}\n" for rule in rules)
    settings, problems = read_settings(text, "config.yaml", {})
    assert settings.permissions["fs_write"] == "allow"
    assert settings.permissions["execute_command"] == PermissionRule(allow=("ls*",), ask=("*",))
    assert [(problem.line, problem.severity, problem.key) for problem in problems] == [
        (4, "error", "permissions.fs_rm"),
        (5, "warning", "permissions.fs_cat.allw"),
    ]
    assert has_message(problems[0].hint, "protocol.problems.suggestion", name="allow")


def test_tools_can_be_chosen_by_the_environment() -> None:
    assert read_settings("enabled_tools: fs", "c", {"CALLBOARD_ENABLED_TOOLS": "all"})[0].enabled_tools == "all"


@pytest.mark.parametrize("price", ["input_price", "output_price", "cached_input_price", "cache_write_price"])
def test_a_price_that_would_make_sums_infinite_is_an_error(price: str) -> None:
    text = f"clients:\n  - {{type: openai, name: a, models: [{{name: m, {price}: 1e308}}]}}\n"
    _, [problem] = read_settings(text, "config.yaml", {})
    assert (problem.severity, problem.line) == ("error", 2)
    assert f"`clients[0].models[0].{price}`" in problem.message


@pytest.mark.parametrize("cost", ["1e300", ".inf", ".nan"])
def test_a_daily_limit_that_limits_nothing_is_an_error(cost: str) -> None:
    _, problems = read_settings(f"api: {{limits: {{daily: {{max_cost: {cost}}}}}}}\n", "config.yaml", {})
    assert "api.limits.daily.max_cost" in str(errors_in(problems)[-1])


def test_how_durable_runs_are_kept_is_read() -> None:
    settings, problems = read_settings(
        "durable: {by_default: true, resume: ask, keep_days: 7, max_bytes: 1000000}", "config.yaml", {}
    )
    assert problems == []
    assert settings.durable == DurableSettings(by_default=True, resume="ask", keep_days=7, max_bytes=1_000_000)
    _, problems = read_settings("durable: {resume: perhaps}", "config.yaml", {})
    assert [problem.severity for problem in problems] == ["error"]
    _, problems = read_settings("durable: {keep: 7}", "config.yaml", {})
    assert [problem.code for problem in problems] == ["unknown_key"]
