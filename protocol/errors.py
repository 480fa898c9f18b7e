"""Every error that reaches a user, by name.

One tree under `CallboardError`. Each class has a stable `code` (what JSON output and events carry) and the
`exit_code` that the command line ends with when the error ends a run:

    1 the run failed                        4 a limit was reached (timeout, turns, budget, a model's window)
    2 wrong usage or an invalid file        5 a person was needed and none was there
    3 configuration or credentials          6 upstream failed, a retry may work

Whose fault it is shows in the name: a `GraphMistake` is the author's, an `UpstreamError` the provider's, a
`NodeFailed` the step's own. Kernel errors (`ActorError` and below) say what became of an actor or a message.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Self

from .kernel.errors import *  # noqa: F403 - what the kernel names is public here as well
from .kernel.errors import CallboardError, LimitReached, RunFailed, Saturated

if TYPE_CHECKING:
    from .problems import Problem

# --- the user's words and files ---------------------------------------------------------------------------


class UsageError(CallboardError):
    """The call itself is wrong: an unknown target, contradicting flags, a value of the wrong type.

    Attributes:
        needs: the scope that a caller needs to read the text, which names what there is; "" for none.
        plain: what callers without it are told.
    """

    code = "usage"
    exit_code = 2
    needs = ""
    plain = ""

    def for_readers(self, needs: str, plain: str) -> Self:
        """Callers without the scope `needs` are told `plain`; returns self."""
        self.needs, self.plain = needs, plain
        return self


class NotFound(UsageError):
    """What was named (a run, an actor, a session) is not there, or not to be seen by who asks."""

    code = "not_found"


class Conflict(UsageError):
    """It is there, but in no state in which this can be done to it: an ended run, a name that is taken."""

    code = "conflict"


class InvalidFile(CallboardError):
    """A file the user wrote can't be used. Carries every problem found, not only the first."""

    code = "invalid_file"
    exit_code = 2

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems: tuple[Problem, ...] = tuple(problems)


class Unsupported(CallboardError):
    """The file is valid, but asks for something this version can't run yet."""

    code = "unsupported"
    exit_code = 2


class NotKept(CallboardError):
    """Files of a session, or what models have cost, can't be read or written: the disk is full, for instance."""

    code = "not_kept"


class ConfigError(CallboardError):
    """`config.yaml` or the environment asks for something that can't be had."""

    code = "config"
    exit_code = 3


class Unpriced(ConfigError):
    """Money is limited, and the price of a model is not known."""

    code = "unpriced"

    @classmethod
    def of(cls, model: str, file: str) -> Unpriced:
        """The error for a model by its id; `file` is where it could be given a price."""
        return cls(
            f"'{model}' has no price, so a limit in USD can't be kept: give the model `input_price` and `output_price` "
            f"in {file}, refresh the prices with `callboard models update`, or go on with `--allow-unpriced`"
        )

    @classmethod
    def of_day(cls, model: str, file: str, limit: str) -> Unpriced:
        """The same where the server limits money; `limit` is the key in its settings."""
        return cls(
            f"'{model}' has no price, so `{limit}` of this server can't be kept, whatever `allow_unpriced` says. The "
            f"server's owner can give the model `input_price` and `output_price` in {file}, or refresh the prices with "
            "`callboard models update`"
        )


class CredentialsError(ConfigError):
    """No key, or a key that the provider refused."""

    code = "credentials"


class KeyRefused(CredentialsError):
    """A provider did not take a key, or does not let its owner do this.

    Attributes:
        said: what the provider said, without our advice.
        status: HTTP status, 401 or 403.
    """

    def __init__(self, message: str, *, said: str = "", status: int | None = None) -> None:
        super().__init__(message)
        self.said = said or message
        self.status = status


class SignInNeeded(CredentialsError):
    """There is no token, or it is good no more, and only a person can get another one."""

    code = "sign_in_needed"


class OAuthRefused(CredentialsError):
    """An authorization server, or the person who was asked there, said no.

    Attributes:
        error: the server's word for why, such as `access_denied` or `invalid_grant`.
    """

    code = "oauth_refused"

    def __init__(self, message: str, *, error: str = "") -> None:
        super().__init__(message)
        self.error = error


# --- who asks ----------------------------------------------------------------------------------------------


class Unauthorized(CallboardError):
    """Who asks has not shown who they are: no token, or an unknown one."""

    code = "unauthorized"
    exit_code = 3


class Denied(CallboardError):
    """Who asks is known, and may not do this."""

    code = "forbidden"
    exit_code = 3


class RateLimited(Saturated):
    """Who asks has asked too often.

    Attributes:
        retry_after: seconds after which it may be tried again.
    """

    code = "rate_limited"

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


# --- a run ------------------------------------------------------------------------------------------------


class GraphMistake(RunFailed):
    """The graph itself is wrong, which shows only while it runs: never tolerated as a node's own failure.

    A strict template that names a missing key, an unknown `_next`, two parallel writers without a reducer,
    the visit cap, several end nodes in one step.
    """

    code = "graph"


class NodeFailed(RunFailed):
    """A node's work failed: a script exited with an error, a model's answer did not fit its schema, ..."""

    code = "node_failed"


class FailedEnd(NodeFailed):
    """A graph reached an end node whose `error` says that the run has failed; the run has an output all the same."""

    code = "failed_end"


class UnknownOutcome(NodeFailed):
    """It was under way when the program was killed, and nobody is there to say whether it is to be done again."""

    code = "unknown_outcome"


class WorkCrashed(NodeFailed):
    """The actor that did a piece of work had a bug; the text is that of its exception, with its class."""


class WorkCancelled(NodeFailed):
    """The actor that did a piece of work was cancelled from outside."""


class TurnsReached(LimitReached):
    """`--max-turns` or `max_iterations` model turns were used up.

    Attributes:
        account: path of the account that is at its end (`Account.path`); "" if it is none.
    """

    code = "max_turns"
    account: str = ""


class BudgetReached(LimitReached):
    """`--max-tokens` or `--max-cost` was used up, or the same of `limits`.

    Attributes:
        account: path of the account that is at its end (`Account.path`).
    """

    code = "budget"
    account: str = ""


class DayReached(BudgetReached):
    """What a subject, or all together, may spend on a server in a day was used up (`daily` of its settings).

    Attributes:
        retry_after: seconds until the next day begins, or until others may reserve less of this one.
    """

    code = "daily_budget"

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LedgerBroken(BudgetReached):
    """What is spent of a daily limit can't be written down, so nothing may be spent; it ends a run as `DayReached`."""

    code = "ledger"


class ShareReached(LimitReached):
    """The `limits` of an agent or a node were reached: it has failed, and the run may go on without it.

    Its code is that of the error that ended it.
    """

    code = "budget"


class WindowReached(LimitReached):
    """A conversation does not fit the window of its model, whatever is left out of it."""

    code = "window"


class HookRefused(CallboardError):
    """A hook has refused a prompt, or has ended the run; the text is its reason."""

    code = "hook_refused"


class ToolFailed(CallboardError):
    """A tool call failed. The model gets it and goes on; the run fails only where no model is there.

    Attributes:
        stderr: the end of what the tool wrote there.
        output: what it had written as its result until then.
    """

    code = "tool_failed"

    def __init__(self, message: str, *, stderr: str = "", output: str = "") -> None:
        super().__init__(message)
        self.stderr = stderr
        self.output = output


class ModelError(RunFailed):
    """The provider answered with an error that another try would not mend.

    Attributes:
        status: HTTP status, or None if it was none that told so.
    """

    code = "model"
    status: int | None = None


class AccountEmpty(CredentialsError):
    """The provider refuses all requests with this key until it is paid, or until a day or a month is over."""


class UpstreamError(ModelError):
    """The provider or the network failed in a way that may pass (429, 5xx, a broken connection).

    Attributes:
        retry_after: seconds the provider asked us to wait, if it did.
        sent: false where the request did not get as far as the provider.
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
    """A model's reply has neither text nor calls: never a success, whatever the provider says of its end."""

    code = "empty_reply"


class ReplyFiltered(ModelError):
    """A filter of the provider's has stopped the prompt or the reply; the text has the provider's reason."""

    code = "reply_filtered"


class Stalled(UpstreamError):
    """A model's answer has begun, and then stood still for too long."""

    code = "stalled"


# --- MCP servers -------------------------------------------------------------------------------------------


class McpError(CallboardError):
    """An MCP server refused a request, or what it said can't be used.

    Attributes:
        rpc_code: JSON-RPC's number, None where the server gave none.
        data: what the server says beside its text.
    """

    code = "mcp"

    def __init__(self, message: str, *, rpc_code: int | None = None, data: object = None) -> None:
        super().__init__(message)
        self.rpc_code = rpc_code
        self.data = data


class McpLost(McpError):
    """An MCP server can't be reached: it did not start, died, or broke the connection."""

    code = "mcp_lost"
    exit_code = 6


class McpUnsent(McpLost):
    """An MCP server has not begun to do what it was asked for; on a new connection it may be asked again."""


class HttpRefused(McpError):
    """An MCP server's address gave an answer of HTTP's that no such server gives to a request it understood.

    Attributes:
        status: HTTP's number.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class McpUnauthorized(HttpRefused):
    """An MCP server wants credentials, or others than it was given."""

    code = "mcp_unauthorized"
    exit_code = 3


class McpSignInNeeded(McpUnauthorized):
    """An MCP server wants a person to sign in; the text names the command.

    Attributes:
        scopes: what it wants that the token is not good for; empty if there is no good token at all.
    """

    def __init__(self, message: str, status: int, scopes: tuple[str, ...] = ()) -> None:
        super().__init__(message, status)
        self.scopes = scopes


# --- knowledge ---------------------------------------------------------------------------------------------


class KnowledgeError(ConfigError):
    """A knowledge base can't be used or built as it is; the text says what to run."""

    code = "knowledge"


class KnowledgeMissing(KnowledgeError):
    """There is no such knowledge base yet."""

    code = "knowledge_missing"


class KnowledgeBusy(KnowledgeError):
    """Another process is building this knowledge base."""

    code = "knowledge_busy"


# --- servers of callboard, as their clients see them --------------------------------------------------------


class NoServer(ConfigError):
    """No server runs that could be asked, or it is not where it is said to be."""

    code = "no_server"


class ServerLost(CallboardError):
    """The server went away, or does not answer."""

    code = "server_lost"
    exit_code = 6


@functools.cache
def exit_codes() -> dict[str, int]:
    """What the command line ends with, by the `code` of the error that ended a run."""
    codes: dict[str, int] = {}
    for kind in kinds():
        codes.setdefault(kind.code, kind.exit_code)
    return codes


def kinds() -> Iterator[type[CallboardError]]:
    """Every class of error there is by now, each behind the one it is derived from."""
    waiting: list[type[CallboardError]] = [CallboardError]
    while waiting:
        yield (kind := waiting.pop())
        waiting += kind.__subclasses__()
