"""Errors that reach a user.

All derive from `CallboardError`. Each class has a stable `code` (in JSON output and events) and the `exit_code` of
the command line if the error ends a run:

    1 the run failed                        4 a limit was reached (timeout, turns, budget, a model's window)
    2 wrong usage or an invalid file        5 a user was needed and none was available
    3 configuration or credentials          6 upstream failed, a retry may work

The name shows the cause: a `GraphMistake` is the author's, an `UpstreamError` the provider's, a `NodeFailed` the
step's own. Kernel errors (`ActorError` and its subclasses) report the fate of an actor or a message.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Self

from .deferred_types import defer
from .kernel.errors import *  # noqa: F403 - the kernel's errors are public here as well
from .kernel.errors import CallboardError, LimitReached, RunFailed, Saturated

if TYPE_CHECKING:
    from .problems import Problem
else:
    defer(globals(), {".problems": "Problem"})

# --- the user's input and files ---------------------------------------------------------------------------


class UsageError(CallboardError):
    """The call itself is wrong: an unknown target, contradicting flags, a value of the wrong type.

    Attributes:
        needs: scope that a caller needs to read the text, which lists names; "" for none.
        plain: text for callers without that scope.
    """

    code = "usage"
    exit_code = 2
    needs: str = ""
    plain: str = ""

    def for_readers(self, needs: str, plain: str) -> Self:
        """Restrict the text to callers with the scope `needs`; others get `plain`. Return self."""
        self.needs, self.plain = needs, plain
        return self


class NotFound(UsageError):
    """The named run, actor or session does not exist, or the caller may not see it."""

    code = "not_found"


class Conflict(UsageError):
    """The resource exists, but its state does not permit the operation: an ended run, a name in use."""

    code = "conflict"


class InvalidFile(CallboardError):
    """A file of the user cannot be used. It has every problem found, not only the first."""

    code = "invalid_file"
    exit_code = 2

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems: tuple[Problem, ...] = tuple(problems)


class Unsupported(CallboardError):
    """The file is valid, but uses a feature that this version cannot run yet."""

    code = "unsupported"
    exit_code = 2


class NotKept(CallboardError):
    """Files of a session, or the record of spending, cannot be read or written, for example on a full disk."""

    code = "not_kept"


class ConfigError(CallboardError):
    """A setting, an environment variable, or a file that one of them names is unusable."""

    code = "config"
    exit_code = 3


class Unpriced(ConfigError):
    """Spending is limited, and the price of a model is unknown."""

    code = "unpriced"

    @classmethod
    def of(cls, model: str, file: str) -> Unpriced:
        """Return the error for a model id; `file` is the file that may set a price."""
        return cls(
            f"'{model}' has no price, so a limit in USD can't be enforced: give the model `input_price` and "
            f"`output_price` in {file}, refresh the prices with `callboard models update`, or run it with "
            "`--allow-unpriced`"
        )

    @classmethod
    def of_day(cls, model: str, file: str, limit: str) -> Unpriced:
        """Return the error for a spending limit of the server; `limit` is its key in the settings."""
        return cls(
            f"'{model}' has no price, so `{limit}` of this server can't be enforced, and `allow_unpriced` has no "
            f"effect on it. The server's owner can give the model `input_price` and `output_price` in {file}, or "
            "refresh the prices with `callboard models update`"
        )


class CredentialsError(ConfigError):
    """The key is missing, or the provider refused it."""

    code = "credentials"


class KeyRefused(CredentialsError):
    """A provider refused a key, or its owner lacks the permission.

    Attributes:
        said: message of the provider, without Callboard's advice.
        status: HTTP status, 401 or 403.
    """

    def __init__(self, message: str, *, said: str = "", status: int | None = None) -> None:
        super().__init__(message)
        self.said: str = said or message
        self.status = status


class SignInNeeded(CredentialsError):
    """A token is missing or no longer valid, and only the user can get another one."""

    code = "sign_in_needed"


class OAuthRefused(CredentialsError):
    """An authorization server, or the user that it asked, refused.

    Attributes:
        error: error code of the server, such as `access_denied` or `invalid_grant`.
    """

    code = "oauth_refused"

    def __init__(self, message: str, *, error: str = "") -> None:
        super().__init__(message)
        self.error = error


# --- callers ------------------------------------------------------------------------------------------------


class Unauthorized(CallboardError):
    """The caller is not authenticated: no token, or an unknown one."""

    code = "unauthorized"
    exit_code = 3


class Denied(CallboardError):
    """The caller is authenticated, and lacks the permission."""

    code = "forbidden"
    exit_code = 3


class RateLimited(Saturated):
    """The caller has sent too many requests.

    Attributes:
        retry_after: seconds until a retry is useful.
    """

    code = "rate_limited"

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


# --- runs -------------------------------------------------------------------------------------------------


class GraphMistake(RunFailed):
    """The graph itself is wrong, which only shows at run time. It is never tolerated as a node's failure.

    Examples are a strict template with a missing key, an unknown `_next`, two parallel writers without a reducer, the
    visit limit, and several end nodes in one step.
    """

    code = "graph"


class NodeFailed(RunFailed):
    """A node's work failed: a script exited with an error, a model's answer did not fit its schema, ..."""

    code = "node_failed"


class FailedEnd(NodeFailed):
    """A graph reached an end node with an `error`: the run has failed, but it has an output."""

    code = "failed_end"


class UnknownOutcome(NodeFailed):
    """The call was under way when the program was killed, and no user is available to decide whether to repeat it."""

    code = "unknown_outcome"


class WorkCrashed(NodeFailed):
    """The actor of a piece of work crashed; the text contains its exception and the class."""


class WorkCancelled(NodeFailed):
    """The actor of a piece of work was cancelled from outside."""


class TurnsReached(LimitReached):
    """The model turns of `--max-turns` or `max_iterations` are used up.

    Attributes:
        account: path of the exhausted account (`Account.path`); "" if it is not an account's limit.
    """

    code = "max_turns"
    account: str = ""


class BudgetReached(LimitReached):
    """The amount of `--max-tokens` or `--max-cost`, or of the same keys in `limits`, is used up.

    Attributes:
        account: path of the exhausted account (`Account.path`).
    """

    code = "budget"
    account: str = ""


class DayReached(BudgetReached):
    """The daily spending limit of a subject, or of all subjects, on a server is used up (`daily` in its settings).

    Attributes:
        retry_after: seconds until the next day begins, or until others may have reserved less of this one.
    """

    code = "daily_budget"

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LedgerBroken(BudgetReached):
    """The spending of a daily limit cannot be recorded, so spending is refused. Ends a run as `DayReached` does."""

    code = "ledger"


class ShareReached(LimitReached):
    """The `limits` of an agent or a node were reached: it has failed, and the run may continue without it.

    Its code is the code of the error that ended it.
    """

    code = "budget"


class WindowReached(LimitReached):
    """A conversation does not fit the window of its model, whatever is omitted."""

    code = "window"


class HookRefused(CallboardError):
    """A hook refused a prompt, or ended the run; the text is its reason."""

    code = "hook_refused"


class ToolFailed(CallboardError):
    """A tool call failed. The model gets the error and continues; without a model, the run fails.

    Attributes:
        stderr: last part of the tool's stderr.
        output: output of the tool until the failure.
    """

    code = "tool_failed"

    def __init__(self, message: str, *, stderr: str = "", output: str = "") -> None:
        super().__init__(message)
        self.stderr = stderr
        self.output = output


class SendingRefused(ToolFailed):
    """A call was not made because it could send private data away, and no user has agreed to it."""

    code = "sending_refused"


class ToolRaised(RunFailed):
    """A Python function that is a tool with `on_error="raise"` raised an exception, which is the `__cause__`."""

    code = "tool_raised"


class ResultInvalid(RunFailed):
    """The answer of a model does not fit the type of the run's result, and repeated requests did not help."""

    code = "result_invalid"


class CallRefused(ToolFailed):
    """The user denied a tool call."""

    code = "call_refused"


class ModelError(RunFailed):
    """The provider returned an error that a retry would not resolve.

    Attributes:
        status: HTTP status; None if the error has no status.
    """

    code = "model"
    status: int | None = None


class AccountEmpty(CredentialsError):
    """The provider refuses all requests with this key until it is paid, or until a day or a month is over."""


class UpstreamError(ModelError):
    """The provider or the network failed in a way that may be temporary (429, 5xx, a broken connection).

    Attributes:
        retry_after: seconds to wait, if the provider named them.
        sent: False if the request did not reach the provider.
    """

    code = "upstream"
    exit_code = 6
    transient = True
    sent = True

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class EmptyReply(UpstreamError):
    """A model's reply has neither text nor calls. That is never a success, whatever stop reason was returned."""

    code = "empty_reply"


class ReplyFiltered(ModelError):
    """A filter of the provider stopped the prompt or the reply; the text has the provider's reason."""

    code = "reply_filtered"


class Stalled(UpstreamError):
    """A model's answer began, and then no data arrived for too long."""

    code = "stalled"


# --- MCP servers -------------------------------------------------------------------------------------------


class McpError(CallboardError):
    """An MCP server refused a request, or its response cannot be used.

    Attributes:
        rpc_code: JSON-RPC error number; None if the server returned none.
        data: data of the server in addition to its text.
    """

    code = "mcp"

    def __init__(self, message: str, *, rpc_code: int | None = None, data: object = None) -> None:
        super().__init__(message)
        self.rpc_code = rpc_code
        self.data = data


class McpLost(McpError):
    """An MCP server cannot be reached: it did not start, died, or broke the connection."""

    code = "mcp_lost"
    exit_code = 6


class McpUnsent(McpLost):
    """An MCP server has not begun to process the request, so it may be repeated on a new connection."""


class HttpRefused(McpError):
    """The address of an MCP server returned an HTTP response that such a server never returns to a request it
    understands.

    Attributes:
        status: HTTP status.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class McpUnauthorized(HttpRefused):
    """An MCP server requires credentials, or other ones."""

    code = "mcp_unauthorized"
    exit_code = 3


class McpSignInNeeded(McpUnauthorized):
    """An MCP server requires the user to sign in; the text names the command.

    Attributes:
        scopes: scopes that the token lacks; empty if there is no valid token at all.
    """

    def __init__(self, message: str, status: int, scopes: tuple[str, ...] = ()) -> None:
        super().__init__(message, status)
        self.scopes = scopes


# --- knowledge ---------------------------------------------------------------------------------------------


class KnowledgeError(ConfigError):
    """A knowledge base cannot be used or built in its present state; the text contains the command to run."""

    code = "knowledge"


class KnowledgeMissing(KnowledgeError):
    """The knowledge base does not exist yet."""

    code = "knowledge_missing"


class KnowledgeBusy(KnowledgeError):
    """Another process is building this knowledge base."""

    code = "knowledge_busy"


# --- Callboard's own servers, as their clients see them ------------------------------------------------------


class NoServer(ConfigError):
    """No server is running, or it is not at the given address."""

    code = "no_server"


class ServerLost(CallboardError):
    """The server has ended, or does not respond."""

    code = "server_lost"
    exit_code = 6


@functools.cache
def exit_codes() -> dict[str, int]:
    """Return the exit codes of the command line by the `code` of the error that ended a run."""
    codes: dict[str, int] = {}
    for kind in kinds():
        # Subclasses may share a code (`credentials`, `mcp_lost`). `kinds` yields their base class first, and that one
        # decides.
        codes.setdefault(kind.code, kind.exit_code)
    return codes


def kinds() -> Iterator[type[CallboardError]]:
    """Yield every error class that has been imported, each after its base class."""
    waiting: list[type[CallboardError]] = [CallboardError]
    while waiting:
        yield (kind := waiting.pop())
        waiting += kind.__subclasses__()
