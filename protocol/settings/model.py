"""Settings of `config.yaml`: models, clients, durable runs, and defaults.

    model: openai:gpt-4o-mini
    temperature: 0.2
    clients:
      - type: openai-compatible
        name: groq
        api_base: https://api.groq.com/openai/v1
        api_key: ${GROQ_API_KEY}
        models:
          - name: llama-3.3-70b-versatile
            input_price: 0.59          # USD per million tokens
            output_price: 0.79
    durable:                           # each key with a value other than its default
      by_default: false                # only runs with `--durable` are durable
      on_unknown: ask                  # the user decides about a call that was under way at a kill
      dormant_after: null              # a run that only waits for the user stays in memory
      resume: ask                      # runs of a killed `callboard serve` at its next start: auto, ask or never
      keep_days: 7                     # journals of completed runs
    repl_prelude: role:coder           # role of a new chat
    cmd_prelude: session:daily         # session of `callboard ask`
    cmd_prelude: daily:coder           # the same; an empty session also gets the role

The keys are Loki's. Every scalar may also be set by the environment as `CALLBOARD_<KEY>` or `LOKI_<KEY>`, which
overrides the file. `${NAME}` and `${NAME:-default}` in a value are replaced by the environment variable NAME. So is
`{{NAME}}`, except in texts of clients. There it is unchanged, a secret that is inserted when the client is used
(`models/providers`), so that `Settings` never contains secrets of the vault. Keys that Callboard does not
use yet are stored in `Settings.other`; unknown keys cause warnings.

A prelude (`prelude_of`) names the role and the session that begin a conversation when the user names no other. The
setting `agent_session` does the same for an agent.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from ..chat import DefaultModels, ReasoningEffort, ThinkingBudget
from ..errors import ConfigError
from ..hooks import GroupsByEvent
from ..interrupted_calls import OnUnknown
from ..languages import Language
from ..mcp.config import PoolSettings, ToolMode
from ..permissions import Permissions
from ..sandbox import Profile, UserSandbox
from .api import ApiSettings
from .patches import ClientPatch, Patch, Patterns
from .vault import VaultSettings

Resume: TypeAlias = Literal["auto", "ask", "never"]

GIB = 1024**3


class DurableSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole block."""

    by_default: Annotated[
        bool, Meta(description="Make runs durable by default; `--durable` and `--ephemeral` take precedence.")
    ] = True
    resume: Annotated[
        Resume,
        Meta(
            description="What a server does at its start with runs whose server was killed. auto: resume them; ask: "
            "list them for the user; never: leave them."
        ),
    ] = "auto"
    keep_days: Annotated[
        float, Meta(ge=0, le=36_500, description="Days to keep the journal of a completed run; 0: for ever.")
    ] = 30.0
    max_bytes: Annotated[
        int,
        Meta(ge=0, description="Maximum size of journals; the oldest completed runs are removed first. 0: no limit."),
    ] = GIB
    dormant_after: Annotated[
        Annotated[float, Meta(ge=0, le=86_400)] | None,
        Meta(
            description="Seconds after which a server unloads a run that only waits for users, until an answer "
            "arrives; null: never.",
        ),
    ] = 60.0
    on_unknown: Annotated[
        OnUnknown | None,
        Meta(
            description="Treatment of calls that were under way when the process was killed, unless a flag or the "
            "agent's file sets it."
        ),
    ] = None


Json = Any

Price: TypeAlias = Annotated[float, Meta(ge=0, le=1e9)]
"""USD per million tokens."""

CLIENT_TYPES = (
    "openai",
    "openai-compatible",
    "azure-openai",
    "bedrock",
    "claude",
    "anthropic",
    "cohere",
    "gemini",
    "ollama",
    "vertexai",
    "local",
)
"""Types of clients."""

KEYS_OF_TYPES = {
    "organization_id": ("openai", "openai-compatible"),
    "api_version": ("azure-openai",),
    "access_key_id": ("bedrock",),
    "secret_access_key": ("bedrock",),
    "session_token": ("bedrock",),
    "region": ("bedrock",),
    "profile": ("bedrock",),
    "api": ("openai", "openai-compatible", "azure-openai"),
    "reasoning_summary": ("openai", "openai-compatible", "azure-openai"),
    "project_id": ("vertexai",),
    "location": ("vertexai",),
    "adc_file": ("vertexai",),
    "auth": ("claude", "anthropic", "gemini", "openai-compatible"),
    "oauth": ("claude", "anthropic", "gemini", "openai-compatible"),
}
"""Keys that only some types of clients have, with these types."""

Cache = Literal["auto", "off", "5m", "1h"]
"""Prompt caching by the provider, and its duration."""

Interface = Literal["chat", "responses"]
"""API of OpenAI: Chat Completions or Responses."""

ReasoningSummary = Literal["auto", "concise", "detailed", "off"]
"""Reasoning summaries of models on the Responses API."""

MODEL_TYPES = ("chat", "embedding", "reranker")
"""Purposes of models."""


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of a model.

    Attributes:
        name: name after `client:`; `real_name` is the provider's name for it, if that differs.
        type: one of `MODEL_TYPES`.
        input_price, output_price: USD per million tokens; None for the price in the price table.
        cached_input_price, cache_write_price: prices of input read from and written to the provider's cache.
        no_stream: replies come whole; no_system_message: the system prompt is put before the first user turn.
        supports_json_schema: whether the server can be asked for a reply that fits a schema.
        max_concurrency: requests to this model that may be under way at once; None for any number.
        requests_per_minute, tokens_per_minute: rate limits; None for those in the provider's replies.
        idle_timeout: `model_idle_timeout` of this model.
        reasoning_effort, thinking_budget: amount of reasoning before the answer, as a level or in tokens.
        cache: `cache` of this model.
        api: interface of OpenAI for requests to it; None for the one that it needs.
        reasoning_summary: summary of its reasoning that the Responses API returns.
        max_batch_size, max_tokens_per_chunk: for an embedding model, maximum texts in a request and tokens in a text.
        dimensions: for an embedding model that supports it, length of its vectors.
        patch: patch of every request to it (see `patches`).
        default_chunk_size: for an embedding model, default size of chunks in characters.
    """

    name: str
    type: str = "chat"
    real_name: str = ""
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    require_max_tokens: bool = False
    input_price: Price | None = None
    output_price: Price | None = None
    cached_input_price: Price | None = None
    cache_write_price: Price | None = None
    supports_vision: bool = True
    supports_function_calling: bool = True
    supports_json_schema: bool = True
    no_stream: bool = False
    no_system_message: bool = False
    system_prompt_prefix: str = ""
    max_concurrency: int | None = None
    requests_per_minute: Annotated[float, Meta(gt=0)] | None = None
    tokens_per_minute: Annotated[float, Meta(gt=0)] | None = None
    idle_timeout: Annotated[float, Meta(ge=0)] | None = None
    reasoning_effort: ReasoningEffort | None = None
    thinking_budget: ThinkingBudget | None = None
    api: Interface | None = None
    reasoning_summary: ReasoningSummary | None = None
    cache: Cache | None = None
    max_batch_size: int | None = None
    max_tokens_per_chunk: int | None = None
    default_chunk_size: int | None = None
    dimensions: Annotated[int, Meta(gt=0)] | None = None
    patch: Patch | None = None


class Extra(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Connection of a client: a `proxy` URL (`-` for none), and the seconds to wait for a connection."""

    proxy: str = ""
    connect_timeout: float = 10.0


class OAuthSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """OAuth sign-in of a client. Missing keys have the values of the client's type, if it has any.

    Attributes:
        client_id, client_secret: credentials for the token endpoint; `basic`: send both in a header, not in the body.
        authorization_url, token_url, device_url, revocation_url: the addresses of the server.
        issuer: its name; an answer that names another one is refused.
        redirect_uri: address to which the browser takes the code: on this machine, or another one for pasting the code.
        scopes: requested scopes; `resource`: the resource that the token is for.
        body: format of token requests.
        params: more parameters of the authorization URL.
        headers: further headers, sent with the token.
    """

    client_id: str = ""
    client_secret: str = ""
    # RFC 6749, section 2.3.1: client_secret_basic instead of client_secret_post
    basic: bool = False
    authorization_url: str = ""
    token_url: str = ""
    # RFC 8628, device authorization grant
    device_url: str = ""
    # RFC 7009, token revocation
    revocation_url: str = ""
    # RFC 9207: `iss` in the answer; prevents a mix-up of authorization servers.
    issuer: str = ""
    redirect_uri: str = ""
    scopes: tuple[str, ...] = ()
    # RFC 8707, resource indicators
    resource: str = ""
    body: Literal["form", "json"] = "form"
    params: dict[str, str] = {}
    headers: dict[str, str] = {}


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of a provider client. Without `models`, any model name is accepted.

    Its limits apply to models without limits of their own.

    Attributes:
        organization_id: organization at OpenAI, for keys that belong to several.
        api_version: version of the interface; for Azure.
        api, reasoning_summary: defaults for its models.
        access_key_id, secret_access_key, session_token: keys of AWS; `profile` is one of AWS's own files.
        patch: patches of requests to its models, applied after those of the models.
        region: region of AWS.
        project_id, location: project and location at Google Cloud; `adc_file` is a file with credentials for it.
        auth: `oauth` if users sign in, as configured under `oauth`; else a key is used.
    """

    type: str
    name: str = ""
    api_base: str = ""
    api_key: str = ""
    organization_id: str = ""
    api_version: str = ""
    access_key_id: str = ""
    secret_access_key: str = ""
    session_token: str = ""
    region: str = ""
    profile: str = ""
    project_id: str = ""
    location: str = ""
    adc_file: str = ""
    auth: Literal["oauth"] | None = None
    oauth: OAuthSettings | None = None
    models: tuple[ModelSettings, ...] = ()
    patch: ClientPatch | None = None
    extra: Extra = Extra()
    api: Interface | None = None
    reasoning_summary: ReasoningSummary | None = None
    cache: Cache | None = None
    max_concurrency: int | None = None
    requests_per_minute: Annotated[float, Meta(gt=0)] | None = None
    tokens_per_minute: Annotated[float, Meta(gt=0)] | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of `config.yaml` and the environment together.

    Attributes:
        model: `client:model`, or several separated by commas, empty for none; `model_from` is the source of the choice.
        dry_run: no request is sent to a model; the reply shows the request.
        keep_requests: whether requests and replies of models are stored next to the logs of runs; None for runs at a
            terminal.
        keep_changes: whether files are stored before a run's tools change them, so that changes can be undone.
        model_idle_timeout: seconds without data after which a streamed reply has stalled; 0 for no limit.
        fallback_cooldown: seconds for which a model that did not answer is skipped, if others may answer.
        cache: prompt caching by providers: `auto`, `off`, or for `5m` or `1h`.
        user_agent: user agent of requests to models; `auto` for our name and version.
        max_output_tokens: limit of every reply, unless the request has its own.
        reasoning_effort, thinking_budget: default amount of reasoning, for models that support it.
        permissions: permissions of tools.
        enabled_tools: tools of agents without a file: names and aliases, or `all`.
        visible_tools: the only available global tools; None for all.
        mapping_tools: aliases, with the names that each means.
        tool_roots: further directories in which the `fs_*` tools may work.
        mcp_server_support: whether MCP servers are used at all.
        enabled_mcp_servers: servers of agents without a file: names and aliases, or `all`.
        mapping_mcp_servers: aliases, with the names that each means.
        mcp_pool: lifetime and number of server processes.
        mcp_tools: presentation of servers' tools to models, unless an agent has its own setting.
        mcp_tools_budget: tokens of tool declarations up to which `auto` shows every tool by itself.
        rag_embedding_model, rag_chunk_size, rag_chunk_overlap, rag_language: defaults for building knowledge bases.
        rag_reranker_model, rag_top_k: defaults for searching them.
        rag_private_pages: whether documents may be pages of this machine and of private networks.
        rag_template: template that combines a prompt with the passages found for it.
        document_loaders: commands that convert documents to text, by file suffix or loader name.
        durable: durable runs; see `durable`.
        sandbox: sandbox rules of agents' processes; see `protocol.sandbox`.
        labels: reaction to calls that may send private data away after untrusted input.
        hooks: commands that run at events of a run; see `protocol.hooks`.
        workspace_instructions: whether agents get the AGENTS.md of their working directory.
        skills_enabled: whether agents may read skills.
        api: settings of a server; see `api`.
        vault: source of `{{NAME}}`; see `vault`.
        patches: patches of the environment, by client (in the spelling of variables) and kind of request.
        other: further known keys, as plain values.
        file: path of the file.
    """

    model: DefaultModels = ""
    model_from: str = ""
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    reasoning_effort: ReasoningEffort | None = None
    thinking_budget: ThinkingBudget | None = None
    stream: bool = True
    dry_run: bool = False
    keep_requests: bool | None = None
    keep_changes: bool = True
    cache: Cache = "auto"
    model_idle_timeout: Annotated[float, Meta(ge=0)] = 120.0
    fallback_cooldown: Annotated[float, Meta(ge=0)] = 60.0
    user_agent: str = ""
    clients: tuple[ClientSettings, ...] = ()
    permissions: Permissions = {}
    enabled_tools: str = ""
    visible_tools: tuple[str, ...] | None = None
    mapping_tools: dict[str, str] = {}
    tool_roots: tuple[str, ...] = ()
    mcp_server_support: bool = True
    enabled_mcp_servers: str = ""
    mapping_mcp_servers: dict[str, str] = {}
    mcp_pool: PoolSettings = PoolSettings()
    mcp_tools: ToolMode = "auto"
    mcp_tools_budget: int = 8000
    rag_embedding_model: str = ""
    rag_chunk_size: Annotated[int, Meta(ge=1)] | None = None
    rag_chunk_overlap: Annotated[int, Meta(ge=0)] | None = None
    rag_language: Language | None = None
    rag_reranker_model: str = ""
    rag_top_k: Annotated[int, Meta(ge=1)] | None = None
    rag_private_pages: bool = False
    rag_template: str = ""
    document_loaders: dict[str, str] = {}
    durable: DurableSettings = DurableSettings()
    sandbox: Profile | UserSandbox = "workspace"
    labels: Literal["off", "warn", "enforce"] = "warn"
    hooks: GroupsByEvent = {}
    workspace_instructions: bool = True
    skills_enabled: bool = True
    api: ApiSettings = ApiSettings()
    vault: VaultSettings = VaultSettings()
    patches: dict[tuple[str, str], Patterns] = {}
    other: dict[str, Json] = {}
    file: str = "config.yaml"

    @property
    def calls_functions(self) -> bool:
        """True if agents may call tools: `function_calling_support`, or `function_calling` as in Loki's example."""
        other = self.other
        return other.get("function_calling_support") is not False and other.get("function_calling") is not False


class Prelude(msgspec.Struct, frozen=True):
    """The role and the session named by a prelude; None for a part that it leaves out."""

    role: str | None = None
    session: str | None = None


def prelude_of(settings: Settings, key: str) -> Prelude:
    """Return the prelude under a key of the settings: `repl_prelude` or `cmd_prelude`.

    Raises:
        ConfigError: the value has none of the three forms.
    """
    text = str(settings.other.get(key) or "")
    if not text:
        return Prelude()
    first, colon, second = text.partition(":")
    if not colon or not first or not second:
        raise ConfigError(f"`{key}` must be session:NAME, SESSION:ROLE or role:NAME, not '{text}'")
    if first == "role":
        return Prelude(role=second)
    return Prelude(session=second) if first == "session" else Prelude(session=first, role=second)
