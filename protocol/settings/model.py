"""`config.yaml`: which models there are, and how they are reached.

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

The keys are Loki's. Every scalar may also come from the environment as `CALLBOARD_<KEY>` or `LOKI_<KEY>`, which wins
over the file. `${NAME}` and `${NAME:-default}` in a value stand for the environment's NAME. So does `{{NAME}}`, but in
texts of clients: there it stays as it is, a secret that is put in when the client is used (`models/filled`), so that no
`Settings` holds what the vault has. Keys that callboard does not use yet are kept in `Settings.other`; unknown keys
cause warnings.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from ..chat import ReasoningEffort, ThinkingBudget
from ..hooks import GroupsByEvent
from ..languages import Language
from ..mcp.config import PoolSettings, ToolMode
from ..model_names import DefaultModels
from ..permissions import Permissions
from ..sandbox import Profile, UserSandbox
from .api import ApiSettings
from .durable import DurableSettings
from .patches import ClientPatch, Patch, Patterns
from .vault import VaultSettings

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
"""Keys of clients that not every client has, and the types that have them."""

Cache = Literal["auto", "off", "5m", "1h"]
"""Whether a provider is to keep what the next request has in common with this one, and for how long."""

Interface = Literal["chat", "responses"]
"""Which interface of OpenAI's: its Chat Completions or its Responses API."""

ReasoningSummary = Literal["auto", "concise", "detailed", "off"]
"""What a model of the Responses API is to show of what it thinks."""

MODEL_TYPES = ("chat", "embedding", "reranker")
"""What models are for."""


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model of a client.

    Attributes:
        name: what the user writes after `client:`; `real_name` is what the provider calls it, if that differs.
        type: one of `MODEL_TYPES`.
        input_price, output_price: USD per million tokens; None for what the table of prices says.
        cached_input_price, cache_write_price: of input that the provider's cache has, and of what goes there.
        no_stream: replies come whole; no_system_message: the system prompt is put before the first user turn.
        supports_json_schema: whether the server can be asked for a reply that fits a schema.
        max_concurrency: requests to this model that may be under way at once; None for any number.
        requests_per_minute, tokens_per_minute: what the provider allows; None for what its replies tell.
        idle_timeout: `model_idle_timeout` of this model.
        reasoning_effort, thinking_budget: how much it thinks before it answers, as a level or in tokens.
        cache: `cache` of this model.
        api: which interface of OpenAI's it is asked by; None for the one it needs.
        reasoning_summary: what it shows of its thinking in the Responses API.
        max_batch_size, max_tokens_per_chunk: of an embedding model: texts in a request, and tokens in a text.
        patch: of every request to it.
        default_chunk_size: of an embedding model: the size of chunks where none is given, in characters.
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
    patch: Patch | None = None


class Extra(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a client is connected to: a `proxy` URL (`-` for none at all), seconds to wait for a connection."""

    proxy: str = ""
    connect_timeout: float = 10.0


class OAuthSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How people sign in for a client, and where. What is left out is that of the client's type, if it has it.

    Attributes:
        client_id, client_secret: as whom we ask for tokens; `basic`: both go into a header, not into the body.
        authorization_url, token_url, device_url, revocation_url: the addresses of the server.
        issuer: its name; an answer that names another one is refused.
        redirect_uri: where the browser is sent to with the code; on this machine, or elsewhere, to be pasted.
        scopes: what is asked for; `resource`: what the token is for.
        body: how requests for tokens are written.
        params: more parameters of the authorization URL.
        headers: what goes along with the token.
    """

    client_id: str = ""
    client_secret: str = ""
    basic: bool = False
    authorization_url: str = ""
    token_url: str = ""
    device_url: str = ""
    revocation_url: str = ""
    issuer: str = ""
    redirect_uri: str = ""
    scopes: tuple[str, ...] = ()
    resource: str = ""
    body: Literal["form", "json"] = "form"
    params: dict[str, str] = {}
    headers: dict[str, str] = {}


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One provider. Without `models` any model name is accepted. Limits are those of each model that has none.

    Attributes:
        organization_id: of OpenAI, for keys that belong to several.
        api_version: of the interface; for Azure.
        api, reasoning_summary: of models that do not say it.
        access_key_id, secret_access_key, session_token: keys of AWS; `profile` is one of AWS's own files.
        patch: of requests to its models, after those of the models themselves.
        region: of AWS.
        project_id, location: of Google Cloud; `adc_file` is a file of credentials for it.
        auth: `oauth` where people sign in, and `oauth` how; else there is a key.
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
    """What `config.yaml` and the environment say together.

    Attributes:
        model: `client:model`, or several with commas, empty for none; `model_from` says where it was chosen.
        dry_run: no request goes to a model; the reply is what would have been sent.
        keep_requests: whether what models see and say is kept beside the logs of runs; None: of runs at a terminal.
        keep_changes: what files hold before a run's tools change them is kept, so that it can be taken back.
        model_idle_timeout: seconds that a streamed reply may say nothing, once it has begun; 0 for any time.
        fallback_cooldown: seconds that a model which did not answer is passed over, where others may answer.
        cache: whether providers keep what requests have in common: `auto`, `off`, or for `5m` or `1h`.
        user_agent: of every request to a model; `auto` for our name and version.
        max_output_tokens: bound of every reply, unless the request has its own.
        reasoning_effort, thinking_budget: how much models think that are not told otherwise, if they can.
        permissions: what tools may do without asking.
        enabled_tools: tools of agents that have no file: names and aliases, or `all`.
        visible_tools: the only global tools there are; None for all.
        mapping_tools: alias to the names it stands for.
        tool_roots: directories beside the working directory in which the `fs_*` tools may work.
        mcp_server_support: whether MCP servers are used at all.
        enabled_mcp_servers: servers of agents that have no file: names and aliases, or `all`.
        mapping_mcp_servers: alias to the names it stands for.
        mcp_pool: how long servers are kept, and how many.
        mcp_tools: how models see the tools of servers, unless an agent says otherwise.
        mcp_tools_budget: tokens of tool declarations up to which `auto` shows every tool by itself.
        rag_embedding_model, rag_chunk_size, rag_chunk_overlap, rag_language: how bases are built that don't say it.
        rag_reranker_model, rag_top_k: how they are looked up in.
        rag_private_pages: whether documents may be pages of this machine and of private networks.
        rag_template: how a prompt is put together with what was found for it.
        document_loaders: commands that make text of documents, by the ending or the name that they are for.
        durable: how runs are kept that go on after a kill; see `durable`.
        sandbox: what the processes of agents may do; see `protocol.sandbox`.
        labels: what is done about calls that send away what may be private, after something came in from outside.
        hooks: commands that are run when something happens in a run; see `protocol.hooks`.
        workspace_instructions: whether agents are told the AGENTS.md of the directory that they work in.
        skills_enabled: whether agents may read skills.
        api: what a server goes by; see `api`.
        vault: where `{{NAME}}` is looked up; see `vault`.
        patches: those of the environment, by client (as in names of variables) and kind of request.
        other: the remaining known keys, as plain values.
        file: where this was read from.
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
        """Whether agents may call tools: `function_calling_support`, or `function_calling` as Loki's example has it."""
        return all(self.other.get(key) is not False for key in ("function_calling_support", "function_calling"))
