"""Processors of edges: what arrives."""

from __future__ import annotations

import pytest
from support.workflow_driver import WorkflowDriver, now, structure, workflow

from callboard.actors.engine.workflow.edges import Functions, process_of
from callboard.actors.engine.workflow.messages import Message
from callboard.protocol.workflow.model import (
    FunctionProcessor,
    Processor,
    RegexExtract,
    Template,
)


def said(text: str) -> Message:
    return Message(role="user", content=text, source="S")


def processed(processor: Processor, text: str, functions: Functions | None = None, **known: str) -> str | None:
    process = process_of(processor, functions or Functions())
    assert callable(process)
    result = process(said(text), known)
    arrived = now(result) if hasattr(result, "send") else result
    return arrived.text if isinstance(arrived, Message) else None


EXTRACTED = [
    (RegexExtract(pattern=r"\d+"), "a 1 b 2", "1"),
    (RegexExtract(pattern=r"\d+", multiple=True), "a 1 b 2", "1\n2"),
    (RegexExtract(pattern=r"n=(?P<n>\d+)", group="n"), "n=7", "7"),
    (RegexExtract(pattern=r"(x)?(\d)", group=1, multiple=True), "1 x2", "x"),
    (RegexExtract(pattern=r"(x)?(\d)", group=1), "1", "1"),
    (RegexExtract(pattern="A.C", case_sensitive=False, dotall=True), "xa\ncx", "a\nc"),
    (RegexExtract(pattern="^b$", multiline=True), "a\nb", "b"),
    (RegexExtract(pattern=r"\d+", template="<{match}|{{match}}>"), "42", "<42|{42}>"),
    (RegexExtract(pattern="no"), "text", "text"),
    (RegexExtract(pattern="no", on_no_match="drop"), "text", None),
    (RegexExtract(pattern="no", on_no_match="default", default_value="d"), "text", "d"),
    (RegexExtract(pattern="no", on_no_match="default"), "text", ""),
]


@pytest.mark.parametrize(("processor", "text", "arrives"), EXTRACTED)
def test_regex_extract(processor: RegexExtract, text: str, arrives: str | None) -> None:
    assert processed(processor, text) == arrives


@pytest.mark.parametrize(
    ("template", "arrives"),
    [
        ("x {{content}} {{ content }}", 'x {"a": [1, "{{b}}"]} {"a": [1, "{{b}}"]}'),
        ("{{content.a[0]}}{{content.a[1]}}", "1{{b}}"),
        ("{{content.zz}} {{unknown}} {{b}} {{my-node.k}}", "{{content.zz}} {{unknown}} said {{my-node.k}}"),
        ("{{{content.a[0]}}}", "{1}"),
    ],
)
def test_templates_put_in_what_is_known_and_leave_the_rest(template: str, arrives: str) -> None:
    text = '{"a": [1, "{{b}}"]}'
    assert processed(Template(template=template), text, **{"b": "said", "my-node": "no json"}) == arrives


def test_a_template_names_nodes_whatever_they_are_called() -> None:
    template = "{{ Article Writer }} {{v1.2}} {{v1.2.key}} {{a/b[0]}} {{}} {{ }} {{x{y}}"
    said = {"Article Writer": "once", "v1": "no", "v1.2": '{"key": 5}', "a/b": "[7]"}
    assert processed(Template(template=template), "t", **said) == 'once {"key": 5} 5 7 {{}} {{ }} {{x{y}}'


def test_a_template_of_braces_alone_takes_no_time() -> None:
    text = "{{" + " " * 500_000 + "{{" * 250_000 + "a." * 100_000 + "}}"
    assert processed(Template(template=text), "t") == text


def test_a_template_sees_what_other_nodes_said_before() -> None:
    yaml = """
        graph:
          start: [A]
          nodes:
            - {id: A, type: literal, config: {content: first}}
            - {id: B, type: literal, config: {content: second}}
            - {id: Z, type: passthrough, config: {}}
          edges:
            - {from: A, to: B}
            - {from: B, to: Z, processor: {type: template, config: {template: "{{content}} after {{A}}"}}}
    """
    assert WorkflowDriver().run(structure(workflow(yaml))).final == "second after first"


CHANGES = [
    (lambda text: None, None),
    (lambda text: text * 2, "abab"),
    (lambda text: 7, "7"),
    (lambda text: {"drop": True, "content": "x"}, None),
    (lambda text: {"content": "x"}, "x"),
    (lambda text: {"metadata": {"k": 1}}, "ab"),
    (lambda text: said("mine"), "mine"),
]


@pytest.mark.parametrize(("change", "arrives"), CHANGES)
def test_functions_say_what_arrives(change: object, arrives: str | None) -> None:
    functions = Functions(processors={"change": change})
    assert processed(FunctionProcessor(name="change"), "ab", functions) == arrives


def test_a_function_that_breaks_changes_nothing() -> None:
    calls: list[str] = []

    def counting(text: str) -> str:
        calls.append(text)
        return f"{text}{len(calls) // (2 - len(calls))}"

    yaml = """
        graph:
          start: [A]
          nodes:
            - {id: A, type: literal, config: {content: a}}
            - {id: B, type: passthrough, config: {}}
            - {id: Z, type: passthrough, config: {}}
          edges:
            - {from: A, to: B, process: {type: function, config: {name: counting}}}
            - {from: B, to: Z, process: {type: function, config: {name: counting}}}
    """
    result = WorkflowDriver().run(structure(workflow(yaml), Functions(processors={"counting": counting})))
    assert [result.outputs[id][0].text for id in "BZ"] == ["a1", "a1"]
