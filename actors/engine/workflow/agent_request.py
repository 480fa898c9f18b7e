"""Model settings of an agent node (provider, `params`, `retry`), converted to a request and a retry policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ....protocol.chat import ChatRequest
from ....protocol.decoding import convert
from ....protocol.errors import GraphMistake, ModelError, UpstreamError
from ....protocol.settings import Settings
from ....protocol.workflow.model import AgentConfig, Retry
from ....supervisors import Backoff
from ....supervisors import Retry as Policy
from ....supervisors.policy import is_transient
from ...work.context import RunContext
from ...work.models.providers import client_of, providers

TEMPERATURE = 0.7
"""DevAll's default temperature; `temperature: null` selects the provider's default."""

TOOL_LOOP = 50
"""Default for the most replies in which a model may call tools."""

_Positive = Annotated[int, Meta(ge=1)]


CALLBOARD = "callboard"
"""Provider name of agents that Callboard runs."""


def known_providers(settings: Settings) -> frozenset[str]:
    """Return the values of `provider` that need no `base_url`."""
    return frozenset({CALLBOARD, *providers(settings)})


def model_of(config: AgentConfig, context: RunContext) -> str:
    """Return the model id, followed by the fallback models if there are any.

    Raises:
        GraphMistake: the provider is unknown.
    """
    client = client_of(
        config.provider, config.base_url, config.api_key, context.settings, context.environ, also=[CALLBOARD]
    )
    provider = config.provider if client is None else context.gateway.catalog.adopt(client)
    model = f"{provider}:{config.name}"
    return f"{model},{config.fallback_models}" if config.fallback_models else model


class ModelParams(msgspec.Struct, kw_only=True):
    """Supported `params`. All others are passed to the provider unchanged.

    Attributes:
        timeout: seconds for one answer, tool calls included.
        tool_loop_limit: most replies for one answer.
        protocol: accepted without effect: all providers get chat requests.
    """

    temperature: float | None = TEMPERATURE
    top_p: float | None = None
    max_tokens: _Positive | None = None
    max_output_tokens: _Positive | None = None
    max_completion_tokens: _Positive | None = None
    stop: str | tuple[str, ...] | None = None
    tool_choice: str | dict[str, Any] | None = None
    stream: bool | None = None
    timeout: Annotated[float, Meta(gt=0)] | None = None
    tool_loop_limit: _Positive = TOOL_LOOP
    protocol: str | None = None

    def completed(self, request: ChatRequest, params: Mapping[str, Any]) -> ChatRequest:
        """Return the request with these parameters."""
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop
        return msgspec.structs.replace(
            request,
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_tokens or self.max_output_tokens or self.max_completion_tokens,
            stop=stop or (),
            tool_choice=_chosen(self.tool_choice),
            stream=self.stream,
            extra={name: value for name, value in params.items() if name not in ModelParams.__struct_fields__},
        )


def read_params(params: Mapping[str, Any]) -> ModelParams:
    """Validate the `params` of an agent.

    Raises:
        GraphMistake: a parameter has an invalid value.
    """
    try:
        return convert(dict(params), ModelParams)
    except msgspec.ValidationError as error:
        raise GraphMistake(f"`params` of the agent: {error}") from None


def _chosen(choice: str | dict[str, Any] | None) -> str:
    if isinstance(choice, dict):
        function = choice.get("function")
        choice = str(function.get("name", "")) if isinstance(function, dict) else None
    return choice or "auto"


_NAMES: dict[int | None, tuple[str, ...]] = {
    None: ("apiconnectionerror", "connectionerror", "connecterror", "connecttimeout", "readtimeout", "readerror"),
    400: ("badrequesterror",),
    403: ("permissiondeniederror",),
    404: ("notfounderror",),
    408: ("apitimeouterror", "timeouterror", "timeoutexception"),
    409: ("conflicterror",),
    422: ("unprocessableentityerror",),
    429: ("ratelimiterror", "resourceexhausted", "toomanyrequests"),
    503: ("internalservererror", "servererror", "serviceunavailable", "serviceunavailableerror"),
}
"""Exception names of DevAll's provider libraries, by HTTP status; None for a connection without an answer."""


def policy_of(retry: Retry) -> Policy:
    """Return the retry policy for the gateway; lists that the file omits have the gateway's defaults."""
    lists = (retry.retry_on_status_codes, retry.retry_on_exception_types, retry.retry_on_error_substrings)
    silent = not retry.non_retry_exception_types and all(each is None for each in lists)
    least = retry.min_wait_seconds
    return Policy(
        most=retry.max_attempts if retry.enabled else 1,
        backoff=Backoff(first=1.0, least=least, most=max(least, retry.max_wait_seconds), jitter=1.0),
        # Without any list the gateway's own rule applies.
        retryable=is_transient if silent else lambda error: isinstance(error, ModelError) and _passes(retry, error),
    )


def _passes(retry: Retry, error: ModelError) -> bool:
    names = _names_of(error)
    if names & _plain(retry.non_retry_exception_types):
        return False
    passing = isinstance(error, UpstreamError)
    codes, types, words = retry.retry_on_status_codes, retry.retry_on_exception_types, retry.retry_on_error_substrings
    if error.status is not None and (passing if codes is None else error.status in codes):
        return True
    # A failed connection has no status.
    if passing and error.status is None and types is None:
        return True
    text = str(error).lower()
    return bool(names & _plain(types or ())) or any(word.lower() in text for word in words or ())


def _names_of(error: ModelError) -> set[str]:
    # One entry of `_NAMES` covers all server errors.
    status = 503 if error.status is not None and error.status >= 500 else error.status
    own = {kind.__name__.lower() for kind in type(error).__mro__}
    return own | set(_NAMES.get(status, ())) | {"apierror"}


def _plain(names: tuple[str, ...]) -> set[str]:
    return {name.rpartition(".")[2].lower() for name in names}
