"""Run request: all options of a run, checked when it is created.

`RunRequest` is pure data, so it survives JSON and msgpack. Every front end expresses a run as a `RunRequest`.
Callbacks, Python functions and other live objects are passed separately (`actors.runs.loading`).

    request = RunRequest(target="researcher", prompt="What is a callboard?", limits=Limits(max_turns=20))
    again = decode_json(msgspec.json.encode(request), RunRequest)

Integers of more than 64 bits can be encoded as JSON, but not as msgpack.
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
from .interrupted_calls import ON_UNKNOWN, OnUnknown
from .json_values import DEEPEST, is_too_deep
from .mcp.config import Server
from .placement import PartOf
from .sandbox import PROFILES, Profile

COMPAT = ("standard", "loki", "devall")
"""Dialects that a request may force; a file of another kind uses its own."""

ID = re.compile("run-[0-9a-z]{1,40}")
"""Format of a run id."""

AnswerText = str | list[str]
"""Prepared answer; a list for a question with several choices."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Upper bounds for a run; None for no limit. All graphs and agents of a run share them.

    Attributes:
        timeout: seconds.
        max_turns: answered model requests.
        max_tokens: input and output tokens together.
        max_cost: USD; models with an unknown price are refused (`RunRequest.allow_unpriced`).
    """

    timeout: float | None = None
    max_turns: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None

    @property
    def of_models(self) -> bool:
        """True if requests to models are limited, and not only the time."""
        return self.max_turns is not None or self.max_tokens is not None or self.max_cost is not None

    def __post_init__(self) -> None:
        """Raise `UsageError` for a limit that cannot be enforced."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            # Refuses NaN as well: all its comparisons are False, so a limit of NaN would never be reached.
            if value is not None and not 0 <= value < float("inf"):
                raise UsageError(f"Limits({name}={value!r}): a limit is a number of at least 0, or None for no limit")


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """Overrides of the agent that a request names, for one run and only for that agent.

    Its child agents, graphs and workflows are not affected.

    Attributes:
        sampling: fields of every `ChatRequest` (`temperature`, `max_tokens` ...).
        auto_continue: None for the file's value.
        result_schema: JSON Schema of the answer, of type object; None for any text.
        tool_choice: for the first request only; an agent that had to call a tool each time would never answer.
    """

    sampling: dict[str, Any] = {}
    auto_continue: bool | None = None
    result_schema: dict[str, Any] | None = None
    tool_choice: str | None = None

    def of(self, agent: Agent) -> Agent:
        """Return the agent with `auto_continue` of this run, if it is set."""
        if self.auto_continue is None:
            return agent
        return msgspec.structs.replace(agent, auto_continue=self.auto_continue)

    def asked(self, request: ChatRequest) -> ChatRequest:
        """Return the request with `sampling` and `tool_choice` of this run, as far as they are set."""
        asked = msgspec.structs.replace(request, **self.sampling)
        if self.tool_choice is None:
            return asked
        return msgspec.structs.replace(asked, tool_choice=self.tool_choice)


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, tag="run", omit_defaults=True, forbid_unknown_fields=True):
    """Options of a run.

    Attributes:
        target: an agent's name, an agent's directory, a YAML file, or an `Agent` made in Python; in a session "" for
            the session's agent.
        prompt: the user's words; in a graph, the value of `{{initial_prompt}}`.
        typed: the part of `prompt` that the user has typed, if another part came through a pipe or from a file; None
            for all of it. Labels (docs/security.md) treat only these words as the user's own.
        model: `client:model`, or several separated by commas. It takes precedence over the models of the settings and
            of the files of agents and graphs. It has no effect on nodes that name their own model, as agent nodes of
            DevAll workflows do.
        variables: values of the agent's variables; for a workflow, values of `${NAME}`.
        state: replaces keys of a graph's `initial_state`; JSON values.
        answers: answers to questions: a list used in order, or a mapping of node ids to an answer or a list of answers;
            stored as texts.
        compat: `standard`, `loki` (agents) or `devall` (workflows), in place of the file's dialect.
        limits: upper bounds for the run.
        allow_unpriced: with `limits.max_cost`, allow models with an unknown price, and count them as free.
        no_wait: fail requests that a rate limit delays.
        strict: treat warnings about the file as errors.
        allow: names of tools that may run without asking the user for permission.
        yes: no tool asks for permission.
        roots: further directories in which the `fs_*` tools may work.
        knowledge: names of knowledge bases in which the prompt is looked up.
        files: paths, globs and URLs whose text is inserted before the prompt.
        rebuild_knowledge: rebuild every knowledge base of the run first.
        attach: files of a workflow's task, for its models and its python nodes.
        save: a directory in which the run is stored as files.
        id: id of the run; None for a new one.
        history: earlier conversation, which an LLM agent continues.
        cwd: directory that the run's tools and scripts work in; None for the process's own.
        servers: MCP servers that an LLM agent gets in addition to its own, with all their tools.
        parts: images and files that an LLM agent gets in addition to the prompt.
        overrides: see `Overrides`.
        role: name of a role in which the model answers, with arguments after `#`; for a target without a file.
        role_prompt: text of a role, in place of its name.
        default_tools: the tools and servers of the target, an `Agent`, come from the settings. Tools named by a role or
            a session replace them.
        on_unknown: policy for calls that are under way when the process of a durable run is killed, whatever files say;
            see `interrupted_calls`.
        workspace: whether AGENTS.md, skills and `.mcp.json` of the directory are used, as far as the user trusts it;
            None for agents that have a file.
        needs: labels that a worker of a cluster must have to execute the run.
        sandbox: sandbox profile of the run's processes, in place of that of the settings; see `sandbox`.
        part: data of the parent run, if this is a remote child.

    Raises:
        UsageError: an option has an invalid value.
    """

    target: str | Agent = ""
    prompt: str = ""
    typed: str | None = None
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
        """Check the values; convert `state` and `answers` to the types that scripts, templates and questions accept."""
        if self.compat is not None and self.compat not in COMPAT:
            raise UsageError(f"compat must be one of {', '.join(COMPAT)}, not '{self.compat}'")
        if self.id is not None and not ID.fullmatch(self.id):
            raise UsageError(
                f"the id of a run must be 'run-' and 1 to 40 lower-case letters or digits, not {self.id[:60]!r}"
            )
        if self.on_unknown is not None and self.on_unknown not in ON_UNKNOWN:
            raise UsageError(f"on_unknown must be one of {', '.join(ON_UNKNOWN)}, not '{self.on_unknown}'")
        if self.sandbox is not None and self.sandbox not in PROFILES:
            raise UsageError(f"sandbox must be one of {', '.join(PROFILES)}, not '{self.sandbox}'")
        # Lone surrogates (from bytes in argv that are not UTF-8) cannot be encoded for a provider or a journal row.
        _check_unicode("the prompt", self.prompt)
        if self.role is not None and self.role_prompt is not None:
            raise UsageError(f"a run has either a role ('{self.role}') or a prompt for one, not both")
        for name, value in self.variables.items():
            _check_unicode(f"the value of variable '{name}'", value)
        if self.state:
            # The struct is frozen; force_setattr is msgspec's way to assign in __post_init__.
            force_setattr(self, "state", _plain_state(self.state))
        if self.answers is not None:
            force_setattr(self, "answers", _plain_answers(self.answers))

    @property
    def in_role(self) -> bool:
        """True if the run has a role."""
        return self.role is not None or self.role_prompt is not None

    @property
    def says_nothing(self) -> bool:
        """True if an LLM agent has nothing to answer: no prompt, no files or parts, no results of its own tools."""
        waits_for_the_model = bool(self.history) and isinstance(self.history[-1], ToolTurn)
        return not (self.prompt.strip() or self.files or self.parts or waits_for_the_model)


def _plain_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return state in the form of scripts and templates: tuples as lists, structs as objects, dates as text."""
    try:
        plain = _listed(msgspec.to_builtins(dict(state), str_keys=True))
    except (TypeError, ValueError) as error:
        raise UsageError(f"`state` must hold JSON values only: {error}") from error
    except RecursionError:
        # msgspec raises it for a list that contains itself, which no depth check before could find.
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
    """Return a value with lists in place of tuples, which `to_builtins` does not convert."""
    if isinstance(value, dict):
        return {key: _listed(each) for key, each in value.items()}
    return [_listed(each) for each in value] if isinstance(value, list | tuple) else value


def _plain_answers(answers: Any) -> list[AnswerText] | dict[str, list[AnswerText]]:
    """Return prepared answers as texts; by node id, a list with one answer per visit."""
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
    # Before numbers, because a bool is an int. A file of answers may have an unquoted `true`.
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
    """Raise `UsageError` for text that scripts and models cannot accept: bytes of a command line outside UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        where = f"its character {error.start + 1} is a byte that is not UTF-8, or half of a surrogate pair"
        raise UsageError(f"{what} is not Unicode text: {where}") from None
