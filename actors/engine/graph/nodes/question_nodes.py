"""approval and input nodes: ask a user, and select the target from the answer."""

from __future__ import annotations

from .....protocol.errors import NodeFailed
from .....protocol.graph import ApprovalNode, InputNode
from .....protocol.kernel.questions import Question
from .....supervisors import Actor
from .....supervisors.escalation import QuestionTimeout
from ..input_validation import parse_rule
from ..plan import NodeJob, NodeResult

PREPARED = ("answers", "default")
"""Sources of answers that were fixed before the run."""


async def run_approval_node(me: Actor, job: NodeJob) -> NodeResult:
    """Ask for a choice; `routes` has the targets of the listed choices, `on_other` that of any other answer.

    After `timeout` seconds without an answer the run continues at `on_timeout`.

    Raises:
        QuestionTimeout: the time has passed, and the node has no `on_timeout`.
    """
    node = job.node
    assert isinstance(node, ApprovalNode)
    question = Question(
        id="",
        actor="",
        node=node.id,
        kind="choice",
        text=job.strict(node.question),
        options=node.options,
        exact=job.plan.compat.options_are_exact,
        timeout=node.timeout,
        people=node.people_only,
    )
    try:
        choice = (await me.ask_person(question)).text
    except QuestionTimeout:
        if node.on_timeout is None:
            raise
        return NodeResult(output="", scope="choice", goto=(node.on_timeout,))
    return NodeResult(output=choice, scope="choice", goto=(node.routes.get(choice, node.on_other),))


async def run_input_node(me: Actor, job: NodeJob) -> NodeResult:
    """Ask for a text.

    An empty answer means the default, which is valid even if it violates `validation` (see `default_is_validated`).
    After `timeout` seconds without an answer the run continues at `on_timeout` with the default.

    Raises:
        NodeFailed: the answer violates `validation`, and it was not given by a user, who is asked again instead
            (unless `input_asks_once`).
        QuestionTimeout: the time has passed, and the node has no `on_timeout`.
    """
    node = job.node
    assert isinstance(node, InputNode)
    compat = job.plan.compat
    default = job.lenient(node.default) if node.default is not None else ""
    text = job.strict(node.question)
    rule = parse_rule(node.validation) if node.validation is not None else None
    problem = None
    while True:
        question = Question(
            id="",
            actor="",
            node=node.id,
            kind="text",
            text=f"{text} [default: {default}]" if default else text,
            default=default if node.default is not None else None,
            rule=None if rule is None else rule.sentence(),
            problem=problem,
            timeout=node.timeout,
            people=node.people_only,
        )
        try:
            answer = await me.ask_person(question)
        except QuestionTimeout:
            if node.on_timeout is None:
                raise
            return NodeResult(output=default, scope="input", goto=(node.on_timeout,))
        value = answer.text or default
        # A front end may fill in the default itself, so compare the value, not the source of the answer.
        checked = node.default is None or value != default or compat.default_is_validated
        problem = rule.problem(value, in_bytes=compat.lengths_in_bytes) if rule is not None and checked else None
        if problem is None:
            targets = (node.next or ())[:1]
            return NodeResult(output=value, scope="input", goto=targets or None)
        by_person = answer.by not in PREPARED and not answer.by.startswith("/")  # a user, who can be asked again
        if compat.input_asks_once or not by_person:
            raise NodeFailed(problem)
