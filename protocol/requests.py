"""A run as a message: all that a caller wants of it, by name, checked when it is made.

`RunRequest` is data alone, so it survives JSON and msgpack: what a front end has to say of a run it says in one of
these. Callbacks, Python functions and other live objects go beside it (`actors.runs.loading`).

    request = RunRequest(target="researcher", prompt="What is a callboard?", limits=Limits(max_turns=20))
    again = decode_json(msgspec.json.encode(request), RunRequest)

Integers beyond 64 bits are JSON, and no msgpack.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from .agent import Agent
from .chat import ChatRequest, Part, ToolTurn, Turn
from .errors import UsageError
from .json_values import DEEPEST, is_too_deep
from .mcp.config import Server
from .place import PartOf
from .repeats import ON_UNKNOWN, OnUnknown
from .sandbox import PROFILES, Profile

COMPAT = ("standard", "loki", "devall")
"""Dialects that a request may force; a file of another kind goes by its own."""

ID = re.compile("run-[0-9a-z]{1,40}")
"""What an id of a run looks like."""

AnswerText = str | list[str]
"""What a prepared answer says; a list for a question with several choices."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a run may use at most; None for no limit. All of a run's graphs and agents share them.

    Attributes:
        timeout: seconds.
        max_turns: model requests that were answered.
        max_tokens: input and output tokens together.
        max_cost: USD; models whose price is not known are refused (`RunRequest.allow_unpriced`).
    """

    timeout: float | None = None
    max_turns: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None

    @property
    def of_models(self) -> bool:
        """Whether what models may be asked is limited, and not the time alone."""
        return self.max_turns is not None or self.max_tokens is not None or self.max_cost is not None

    def __post_init__(self) -> None:
        """Raise `UsageError` for a limit that nothing could keep."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise UsageError(f"Limits({name}={value!r}): a limit is a number of at least 0, or None for no limit")


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """What goes before the file of the agent that a request names: for one run, and for that agent alone.

    Neither the agents that work for it nor graphs and workflows see any of it.

    Attributes:
        sampling: fields of every `ChatRequest` (`temperature`, `max_tokens` ...).
        auto_continue: None leaves it to the file.
    """

    sampling: dict[str, Any] = {}
    auto_continue: bool | None = None

    def of(self, agent: Agent) -> Agent:
        """The agent as this run has it."""
        if self.auto_continue is None:
            return agent
        return msgspec.structs.replace(agent, auto_continue=self.auto_continue)

    def asked(self, request: ChatRequest) -> ChatRequest:
        """The request as this run makes it."""
        return msgspec.structs.replace(request, **self.sampling)


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, tag="run", omit_defaults=True, forbid_unknown_fields=True):
    """See the module.

    Attributes:
        target: an agent's name, an agent's directory, a YAML file, or an `Agent` made in Python; in a session ""
            for the agent whose session it is.
        prompt: the user's words; a graph finds them as `{{initial_prompt}}`.
        model: `client:model` for everything that does not name its own.
        variables: values of the agent's variables; of a workflow, what `${NAME}` stands for.
        state: replaces keys of a graph's `initial_state`; JSON values.
        answers: to questions: a list used in order, or node id to an answer or a list of answers; kept as texts.
        compat: `standard`, `loki` (agents) or `devall` (workflows), whatever the file says.
        limits: what the run may use at most.
        allow_unpriced: with `limits.max_cost`, models whose price is not known may be asked, and count for nothing.
        no_wait: a model's provider that wants requests to wait fails them.
        strict: warnings about the file are errors.
        allow: names of tools that need not ask a person for permission.
        yes: no tool asks for permission.
        roots: directories beside the working directory in which the `fs_*` tools may work.
        knowledge: names of knowledge bases to look the prompt up in.
        files: what is read and put before the prompt: paths, globs, URLs.
        rebuild_knowledge: every knowledge base that the run needs is built anew first.
        attach: files that a workflow's task comes with, for its models and for its python nodes.
        save: a directory in which the run is kept as files.
        id: the run's; None for a new one.
        history: what was said before; an LLM agent goes on from there.
        cwd: the directory that the run's tools and scripts work in; None for the process's own.
        servers: MCP servers that an LLM agent has beside those it names, all their tools included.
        parts: images and files that an LLM agent gets beside the prompt.
        overrides: see there.
        role: the name of a role, with arguments behind `#`, in which a model answers; for a target that has no file.
        role_prompt: the same for a role that is this text, and no file.
        default_tools: the tools and servers of the target, an `Agent`, are those of the settings: what a role or a
            session names counts in their place.
        on_unknown: what is to be done about calls that are under way when the process of a durable run is killed,
            whatever files say; see `repeats`.
        workspace: whether the AGENTS.md, skills and `.mcp.json` of the directory count, as far as their user trusts it;
            None: for agents that have a file.
        needs: labels that a worker of a cluster must have to play it.
        sandbox: the profile that the run's processes are held to, whatever the settings say of all; see `sandbox`.
        part: what it is a part of, if a run of a cluster has it played elsewhere.

    Raises:
        UsageError: a value that no run can be given.
    """

    target: str | Agent = ""
    prompt: str = ""
    model: str | None = None
    variables: dict[str, str] = {}
    state: dict[str, Any] = {}
    answers: list[Any] | dict[str, Any] | None = None
    compat: str | None = None
    limits: Limits = Limits()
    allow_unpriced: bool = False
    no_wait: bool = False
    strict: bool = False
    allow: tuple[str, ...] = ()
    yes: bool = False
    roots: tuple[str, ...] = ()
    knowledge: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    rebuild_knowledge: bool = False
    attach: tuple[str, ...] = ()
    save: str | None = None
    id: str | None = None
    history: tuple[Turn, ...] = ()
    cwd: str | None = None
    servers: tuple[Server, ...] = ()
    parts: tuple[Part, ...] = ()
    overrides: Overrides = Overrides()
    role: str | None = None
    role_prompt: str | None = None
    default_tools: bool = False
    on_unknown: OnUnknown | None = None
    sandbox: Profile | None = None
    workspace: bool | None = None
    needs: tuple[str, ...] = ()
    part: PartOf | None = None

    def __post_init__(self) -> None:
        """Check the values; `state` and `answers` become what scripts, templates and questions can take."""
        if self.compat is not None and self.compat not in COMPAT:
            raise UsageError(f"compat must be one of {', '.join(COMPAT)}, not '{self.compat}'")
        if self.id is not None and not ID.fullmatch(self.id):
            raise UsageError(
                f"the id of a run is 'run-' and up to 40 lower-case letters or digits, not {self.id[:60]!r}"
            )
        if self.on_unknown is not None and self.on_unknown not in ON_UNKNOWN:
            raise UsageError(f"on_unknown must be one of {', '.join(ON_UNKNOWN)}, not '{self.on_unknown}'")
        if self.sandbox is not None and self.sandbox not in PROFILES:
            raise UsageError(f"sandbox must be one of {', '.join(PROFILES)}, not '{self.sandbox}'")
        _check_unicode("the prompt", self.prompt)
        if self.role is not None and self.role_prompt is not None:
            raise UsageError(f"a run has either a role ('{self.role}') or a prompt for one, not both")
        for name, value in self.variables.items():
            _check_unicode(f"the value of variable '{name}'", value)
        if self.state:
            force_setattr(self, "state", _plain_state(self.state))
        if self.answers is not None:
            force_setattr(self, "answers", _plain_answers(self.answers))

    @property
    def in_role(self) -> bool:
        """Whether a role is wanted."""
        return self.role is not None or self.role_prompt is not None

    @property
    def says_nothing(self) -> bool:
        """Whether an LLM agent has nothing to answer: no prompt, nothing beside it, no results of its own tools."""
        waits_for_the_model = bool(self.history) and isinstance(self.history[-1], ToolTurn)
        return not (self.prompt.strip() or self.files or self.parts or waits_for_the_model)


def _plain_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """State as scripts and templates see it: tuples are lists, structs are objects, dates are text."""
    try:
        plain = _listed(msgspec.to_builtins(dict(state), str_keys=True))
    except (TypeError, ValueError) as error:
        raise UsageError(f"`state` must hold JSON values only: {error}") from error
    except RecursionError:
        raise UsageError("`state` is nested too deep, or holds itself") from None
    assert isinstance(plain, dict)
    if is_too_deep(plain):
        raise UsageError(f"`state` is nested too deep: lists and objects may nest {DEEPEST} levels")
    try:
        msgspec.json.encode(plain)
    except UnicodeEncodeError as error:
        raise UsageError(f"`state` holds a text that is not Unicode: {error.reason}") from None
    return plain


def _listed(value: Any) -> Any:
    """A value with lists for its tuples, which `to_builtins` leaves."""
    if isinstance(value, dict):
        return {key: _listed(each) for key, each in value.items()}
    return [_listed(each) for each in value] if isinstance(value, list | tuple) else value


def _plain_answers(answers: Any) -> list[AnswerText] | dict[str, list[AnswerText]]:
    """Prepared answers as texts; what a node id maps to is a list, one per visit."""
    if not isinstance(answers, Mapping):
        return [_answer(value, f"answer {number}") for number, value in enumerate(answers, 1)]
    plain = {}
    for node, given in answers.items():
        several = given if isinstance(given, list | tuple) else [given]
        plain[str(node)] = [_answer(value, f"the answer for '{node}'") for value in several]
    return plain


def _answer(value: Any, what: str) -> AnswerText:
    answer = _worded(value, what)
    for text in [answer] if isinstance(answer, str) else answer:
        _check_unicode(what, text)
    return answer


def _worded(value: Any, what: str) -> AnswerText:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int | float):
        return str(value)
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return [str(item) for item in value]
    raise UsageError(f"{what} must be text, a number, true or false, or a list of texts, not {type(value).__name__}")


def _check_unicode(what: str, text: str) -> None:
    """Raise `UsageError` for text that no script and no model can take: bytes of a command line outside UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        where = f"its character {error.start + 1} is a byte that is not UTF-8, or half of a surrogate pair"
        raise UsageError(f"{what} is not Unicode text: {where}") from None
