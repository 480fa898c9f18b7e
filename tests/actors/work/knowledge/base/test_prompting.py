"""Prompts with what was found for them."""

from __future__ import annotations

from callboard.actors.work.knowledge.base.passages import together, with_knowledge
from callboard.protocol.knowledge import Hit, Retrieved


def found(*sources: str, text: str = "t") -> Retrieved:
    hits = tuple(Hit(text=text, source=source, score=1.0, lines=(1, 1)) for source in sources)
    context = "\n\n".join(f"[Source: {source}]\n{text}" for source in sources)
    return Retrieved(context=context, sources=sources, chunks=hits)


def test_nothing_found_leaves_the_prompt_as_it_is() -> None:
    assert with_knowledge("what?", Retrieved(), "__CONTEXT__ __INPUT__") == "what?"


def test_the_template_says_where_everything_goes() -> None:
    template = "__INPUT__|__CONTEXT__|__SOURCES__|__OTHER__"
    assert with_knowledge("what?", found("a", "b"), template) == (
        "what?|[Source: a]\nt\n\n[Source: b]\nt|- a\n- b|__OTHER__"
    )


def test_what_stands_in_documents_and_prompts_is_no_template() -> None:
    text = with_knowledge("__SOURCES__", found("a", text="__INPUT__"), "__CONTEXT__ __INPUT__")
    assert text == "[Source: a]\n__INPUT__ __SOURCES__"


def test_the_default_template_ends_with_the_prompt() -> None:
    text = with_knowledge("what?", found("a"))
    assert text.endswith("\n\nwhat?")
    assert "<documents>\n[Source: a]\nt\n</documents>" in text


def test_the_best_of_each_base_comes_first() -> None:
    both = together([found("a", "b", "c"), found("x"), Retrieved()])
    assert [hit.source for hit in both.chunks] == ["a", "x", "b", "c"]
    assert both.sources == ("a", "x", "b", "c")
    assert both.context.startswith("[Source: a]\nt\n\n[Source: x]")


def test_one_base_alone_is_taken_as_it_is() -> None:
    alone = found("a")
    assert together([alone]) is alone
