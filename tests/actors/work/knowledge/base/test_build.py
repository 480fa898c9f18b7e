"""A build does what has changed and nothing else, and whoever reads meanwhile is not disturbed."""

from __future__ import annotations

import trio
from support.knowledge_library import Hashing, Library, Listing, Text, Unknowable, by_paragraph, each_of

from callboard.actors.work.knowledge.base.base import KnowledgeBase, SourceChanges, changes
from callboard.actors.work.knowledge.base.build import drop
from callboard.actors.work.knowledge.base.model import BaseSettings, BuildProgress
from callboard.protocol.knowledge import Unreadable


async def test_a_new_base_holds_what_it_was_built_from(library: Library) -> None:
    library.holds(cats="# Cats\n\nThey purr.\n\nThey sleep.", dogs="Dogs bark.")
    report = await library.build()
    assert (report.added, report.changed, report.removed, report.unchanged) == (2, 0, 0, 0)
    assert (report.embedded, report.chunks, report.generation, report.unreadable) == (3, 3, 1, ())
    assert library.embedder.texts == ["Cats\nThey purr.", "Cats\nThey sleep.", "Dogs bark."]
    found = await library.find("who purrs", top_k=1)
    assert found.context == "[Source: cats.md]\nThey purr."
    assert found.sources == ("cats.md",)
    [hit] = found.chunks
    assert (hit.text, hit.lines, hit.heading) == ("They purr.", (3, 3), ("Cats",))


async def test_nothing_new_makes_no_generation(library: Library) -> None:
    library.holds(a="one", b="two")
    await library.build()
    report = await library.build()
    assert (report.unchanged, report.embedded, report.chunks, report.generation) == (2, 0, 2, 1)
    assert not (library.directory / "building").exists()


async def test_only_new_chunks_of_changed_sources_are_embedded(library: Library) -> None:
    library.holds(a="one\n\ntwo\n\nthree", b="four")
    await library.build()
    library.holds(a="zero\n\none\n\nthree", b="four", c="five")
    report = await library.build()
    assert (report.added, report.changed, report.removed, report.unchanged) == (1, 1, 0, 1)
    assert library.embedder.texts == ["zero", "five"]
    assert (report.chunks, report.generation) == (5, 2)
    assert (await library.find("two")).sources == ()
    for word, lines in (("zero", (1, 1)), ("one", (3, 3)), ("three", (5, 5))):
        [hit] = (await library.find(word, top_k=1)).chunks
        assert (hit.source, hit.text, hit.lines) == ("a.md", word, lines)


async def test_sources_that_are_gone_are_found_no_more(library: Library) -> None:
    library.holds(a="apple", b="banana")
    await library.build()
    library.holds(b="banana")
    report = await library.build()
    assert (report.removed, report.unchanged, report.embedded, report.chunks) == (1, 1, 0, 1)
    assert [hit.source for hit in (await library.find("apple banana")).chunks] == ["b.md"]
    library.holds()
    assert (await library.build()).chunks == 0
    assert (await library.find("banana")).chunks == ()
    library.holds(c="cherry")
    assert (await library.build()).chunks == 1
    assert (await library.find("cherry")).sources == ("c.md",)


async def test_what_has_the_same_size_and_time_is_not_read(library: Library) -> None:
    old, young = Text("old", "one", mtime=1000.0), Text("young", "two", mtime=trio.current_time() + 10**12)
    library.sources = [old, young]
    await library.build()
    await library.build()
    assert old.done == {"digest": 1, "documents": 1}
    assert young.done == {"digest": 2, "documents": 1}  # it could have changed twice within the clock's resolution
    library.sources = [Text("old", "two", mtime=1001.0), young]
    assert (await library.build()).changed == 1


async def test_what_cannot_be_read_is_reported_and_what_was_known_is_kept(library: Library) -> None:
    library.holds(**{"a": "apple", "web/b": "banana", "webc": "cherry"})
    await library.build()
    library.sources = [
        Unknowable("a.md", ""),
        Unreadable(source="web/**", reason="no route"),
        Listing("l", '{"x": null}'),
    ]
    report = await library.build()
    assert [each.source for each in report.unreadable] == ["a.md", "web/**", "x"]
    assert (report.removed, report.chunks) == (1, 2)
    assert set((await library.find("apple banana cherry")).sources) == {"a.md", "web/b.md"}


async def test_a_source_may_be_several_documents(library: Library) -> None:
    library.sources = [Listing("list.json", '{"x": "apple", "y": "banana", "z": null}')]
    report = await library.build()
    assert (report.added, report.chunks, [each.source for each in report.unreadable]) == (1, 2, ["z"])
    assert (await library.find("banana", top_k=1)).sources == ("y",)
    library.sources = [Listing("list.json", '{"y": "banana", "w": "cherry"}')]
    await library.build()
    assert library.embedder.texts == ["cherry"]
    assert set((await library.find("apple banana cherry")).sources) == {"y", "w"}


async def test_names_and_texts_that_are_no_unicode_are_reported(library: Library) -> None:
    library.sources = [
        Text("caf\udce9.md", "one"),
        Listing("list", '{"x": "\\ud800", "y": "two"}'),
        Listing("other", '{"z": "\\ud800"}'),
    ]
    report = await library.build()
    assert [each.source for each in report.unreadable] == [r"caf\udce9.md", "x", "z"]
    assert (report.added, report.chunks) == (1, 1)


async def test_of_two_sources_with_one_name_the_first_counts(library: Library) -> None:
    library.sources = [Text("a", "apple"), Text("a", "banana")]
    assert (await library.build()).chunks == 1
    assert (await library.find("apple", top_k=1)).context == "[Source: a]\napple"


async def test_other_chunk_sizes_split_all_again_and_embed_what_came_out_new(library: Library) -> None:
    library.holds(a="one\n\ntwo", b="three")
    await library.build()
    first = library.sources[0]
    report = await library.build(settings=BaseSettings(chunk_size=10), splitter=lambda each: by_paragraph(each)[:1])
    assert isinstance(first, Text)
    assert first.done["documents"] == 2
    assert (report.unchanged, report.embedded, report.chunks, report.generation) == (2, 0, 2, 2)
    assert (await library.build(settings=None)).generation == 2  # the base's own


async def test_a_rebuild_uses_nothing_of_what_is_there(library: Library) -> None:
    library.holds(a="one", b="two")
    await library.build()
    library.embedder = Hashing("other", 32)
    report = await library.build(rebuild=True)
    assert (report.added, report.embedded, report.generation) == (2, 2, 2)
    base = await KnowledgeBase.open(library.directory)
    assert (base.meta.model, base.meta.dimension, base.meta.sources) == ("other", 32, 2)
    base.close()


async def test_a_reader_goes_on_with_what_it_has_opened_until_it_refreshes(library: Library) -> None:
    library.holds(a="apple")
    await library.build()
    base = await KnowledgeBase.open(library.directory)
    library.holds(a="banana")
    await library.build()
    assert not await _has(base, "banana")
    assert await _has(base, "apple")
    library.holds(a="cherry")
    await library.build()
    assert sorted(path.name for path in library.directory.glob("gen-*")) == ["gen-000001", "gen-000003"]
    assert await base.refresh()
    assert not await base.refresh()
    assert await _has(base, "cherry")
    library.holds(a="damson")
    await library.build()
    assert sorted(path.name for path in library.directory.glob("gen-*")) == ["gen-000003", "gen-000004"]
    base.close()
    await library.build()
    assert sorted(path.name for path in library.directory.iterdir()) == ["builder.lock", "current", "gen-000004"]


async def _has(base: KnowledgeBase, word: str) -> bool:
    return bool((await base.retrieve(word, None)).chunks)


async def test_progress_counts_and_estimates(library: Library) -> None:
    library.holds(**{str(number): f"text {number}" for number in range(10)})
    library.embedder.pause = 0.01
    await library.build()
    told: list[BuildProgress] = library.progress
    assert [(each.done, each.source) for each in told if each.phase == "read"][-1] == (10, "9.md")
    embedding = [each for each in told if each.phase == "embed"]
    assert [(each.done, each.total) for each in embedding] == [(0, 10), (4, 10), (8, 10), (10, 10)]
    assert embedding[0].seconds_left is None
    assert embedding[1].seconds_left >= 0.01
    assert embedding[-1].seconds_left == 0
    assert told[-1] == BuildProgress(phase="index", done=20, total=20)


async def test_a_cancelled_build_is_gone_on_with(library: Library) -> None:
    library.holds(**{str(number): f"text {number}" for number in range(12)})
    library.embedder.pause = 0.02
    with trio.CancelScope() as scope:

        def stop(progress: BuildProgress) -> None:
            if progress.phase == "embed" and progress.done == 8:
                scope.cancel()

        await library.build(on_progress=stop)
    assert scope.cancelled_caught
    assert len(library.embedder.texts) == 8
    report = await library.build()
    assert len(library.embedder.texts) == 4
    assert (report.added, report.embedded, report.chunks) == (12, 4, 12)


async def test_what_has_changed_can_be_told_without_a_build(library: Library) -> None:
    library.sources = [Text(name, name, mtime=1000.0) for name in ("same", "touched", "edited", "gone", "web/gone")]
    await library.build()
    base = await KnowledgeBase.open(library.directory)
    assert not await changes(base, each_of(library.sources))
    same, edited = Text("same", "same", mtime=1000.0), Text("edited", "EDITED", mtime=1001.0)
    touched, lost = Text("touched", "touched", mtime=2000.0), Unreadable(source="web/**", reason="no route")
    library.sources = [same, touched, edited, Text("new", "new"), lost]
    found = await changes(base, each_of(library.sources))
    assert found == SourceChanges(added=("new",), changed=("edited",), removed=("gone",), unreadable=(lost,))
    assert (same.done["digest"], touched.done["digest"], edited.done["documents"]) == (0, 1, 0)
    base.close()


async def test_what_can_not_be_read_is_remembered_and_is_nothing_new(library: Library) -> None:
    binary, lost = Listing("binary.md", '{"binary.md": null}', mtime=1000.0), Unknowable("lost.md", "")
    library.sources = [Text("a", "apple", mtime=1000.0)]
    await library.build()
    library.sources += [binary, lost]
    for _ in range(2):
        report = await library.build()
        assert ([each.source for each in report.unreadable], report.generation) == (["binary.md", "lost.md"], 1)
    base = await KnowledgeBase.open(library.directory)
    assert [(each.source, each.reason) for each in (await base.lost()).told] == [
        ("binary.md", "no text"),
        ("lost.md", "not to be had"),
    ]
    binary.done.clear()
    found = await changes(base, each_of(library.sources))
    assert (bool(found), [each.source for each in found.unreadable], binary.done["digest"]) == (False, ["lost.md"], 0)
    library.sources[1:] = [Listing("binary.md", '{"binary.md": null}'), Text("lost.md", "found again")]
    assert (await changes(base, each_of(library.sources))).added == ("lost.md",)
    library.sources[1] = Text("binary.md", "text by now")
    assert (await changes(base, each_of(library.sources))).added == ("binary.md", "lost.md")
    base.close()
    await library.build()
    assert not (library.directory / "unreadable.json").exists()


async def test_a_source_that_can_be_read_no_more_is_not_told_at_every_look(library: Library) -> None:
    library.sources = [Text("a", "apple", mtime=1000.0)]
    await library.build()
    library.sources = [Listing("a", '{"a": null}', mtime=2000.0)]
    base = await KnowledgeBase.open(library.directory)
    assert (await changes(base, each_of(library.sources))).changed == ("a",)
    assert (await library.build()).chunks == 1
    assert not await changes(base, each_of(library.sources))
    base.close()


async def test_a_name_that_is_no_unicode_is_nothing_new(library: Library) -> None:
    library.sources = [Text("caf\udce9.md", "one"), Text("b", "two")]
    await library.build()
    base = await KnowledgeBase.open(library.directory)
    assert not await changes(base, each_of(library.sources))
    base.close()


async def test_a_source_that_somebody_else_reads_is_read_again(library: Library) -> None:
    source = Text("a", "one", mtime=1000.0)
    library.sources = [source]
    await library.build()
    source.done.clear()
    source.reader = "another:"
    base = await KnowledgeBase.open(library.directory)
    await changes(base, each_of(library.sources))
    await library.build()
    assert source.done["digest"] == 2
    base.close()


async def test_a_base_that_is_dropped_is_gone_and_nothing_else(library: Library) -> None:
    library.holds(a="one")
    await library.build()
    base = await KnowledgeBase.open(library.directory)
    (library.directory / "note.txt").write_text("mine")
    await drop(library.directory)
    assert [path.name for path in library.directory.iterdir()] == ["note.txt"]
    assert (await base.retrieve("one", None)).sources == ("a.md",)
    base.close()
    (library.directory / "note.txt").unlink()
    await library.build()
    await drop(library.directory)
    assert not library.directory.exists()
    await drop(library.directory)


async def test_an_interrupted_build_is_gone_on_with_as_it_was_begun(library: Library) -> None:
    library.holds(a="one\n\ntwo\n\nthree")
    with trio.CancelScope() as scope:

        def stop(progress: BuildProgress) -> None:
            if progress.phase == "embed" and progress.done == 2:
                scope.cancel()

        await library.build(on_progress=stop, settings=BaseSettings(chunk_size=7, block=2, language="de"))
    assert (await library.build(settings=None)).embedded == 1
    base = await KnowledgeBase.open(library.directory)
    assert (base.meta.settings.chunk_size, base.meta.settings.language) == (7, "de")
    base.close()
