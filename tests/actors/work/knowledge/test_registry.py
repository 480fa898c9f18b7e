"""Knowledge bases with names of their own: found by name or directory, made without surprises."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.messages import has_message, says

from callboard.actors.work.knowledge import registry
from callboard.actors.work.knowledge.recipe import encoded
from callboard.protocol.errors import InvalidFile, UsageError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration directory; the working directory beside it holds `docs/a.md`."""
    here = tmp_path / "here"
    (here / "docs").mkdir(parents=True)
    (here / "docs" / "a.md").write_text("apples")
    monkeypatch.chdir(here)
    return tmp_path / "config"


def test_what_was_made_is_found_by_its_name(home: Path) -> None:
    file = registry.make("handbook", ["./docs"], home, description="Ours.", chunk_size=500)
    assert file == home / "knowledge" / "handbook.yaml"
    assert registry.names(home) == ["handbook"]
    recipe = registry.named("handbook", home)
    assert (recipe.what, recipe.target) == ("knowledge base 'handbook'", "handbook")
    assert (recipe.directory, recipe.base) == (home / "knowledge" / "handbook.kb", Path.cwd())
    assert (recipe.documents, recipe.chunk_size, recipe.embedding_model) == (("./docs",), 500, None)


def test_its_file_says_how_it_is_used_and_is_never_written_over(home: Path) -> None:
    file = registry.make("handbook", ["docs/*.md", "https://example.com/**"], home)
    assert "callboard kb build handbook" in file.read_text()
    with pytest.raises(UsageError, match=says("work.knowledge.registry.make.2")):
        registry.make("handbook", ["docs"], home)


@pytest.mark.parametrize("name", ["", "a/b", "..", ".a", "a.kb", "a b"])
def test_a_name_that_would_be_a_path_is_refused(home: Path, name: str) -> None:
    with pytest.raises(UsageError, match=says("work.knowledge.registry.make")):
        registry.make(name, ["docs"], home)


@pytest.mark.parametrize("source", ["./nothing", "", "ftp://example.com/x", "https://"])
def test_a_source_that_means_nothing_is_refused_before_anything_is_written(home: Path, source: str) -> None:
    with pytest.raises(UsageError):
        registry.make("handbook", ["docs", source], home)
    assert registry.names(home) == []


def test_a_loader_is_known_by_the_settings(home: Path) -> None:
    with pytest.raises(UsageError):
        registry.make("handbook", ["git://project"], home)
    registry.make("handbook", ["git://project"], home, loaders=["git"])
    assert registry.named("handbook", home).documents == ("git://project",)


def test_relative_paths_in_a_file_start_from_what_it_says_or_from_itself(home: Path) -> None:
    folder = home / "knowledge"
    folder.mkdir(parents=True)
    (folder / "near.yaml").write_text("documents: [near.md]")
    (folder / "up.yaml").write_text("documents: [x.md]\nrelative_to: ../other")
    (folder / "house.yaml").write_text("documents: [x.md]\nrelative_to: ~/books")
    assert registry.named("near", home).base == folder
    assert registry.named("up", home).base == folder / "../other"
    assert registry.named("house", home).base == Path.home() / "books"


def test_an_unknown_name_tells_the_near_one_and_how_to_make_it(home: Path) -> None:
    with pytest.raises(UsageError, match=says("work.knowledge.registry.named")):
        registry.named("handbok", home)
    registry.make("handbook", ["docs"], home)
    with pytest.raises(UsageError, match=says("protocol.problems.suggestion", name="handbook")) as told:
        registry.named("handbok", home)
    assert has_message(str(told.value), "work.knowledge.registry.named.2", called_2="handbok")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("documents: []", says("protocol.knowledge.read_knowledge_file")),
        ("description: x", says("protocol.reading.Reading._missing.2", key="documents")),
        ("documents: [a]\nchunk_size: 0", "chunk_size"),
        ("documents: a.md", "a list of texts"),
        ("- a", says("protocol.yaml_tree.parse_mapping.2")),
    ],
)
def test_a_file_with_errors_is_told_by_line(home: Path, text: str, said: str) -> None:
    file = home / "knowledge" / "bad.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    with pytest.raises(InvalidFile, match=said) as told:
        registry.named("bad", home)
    assert all(problem.file == str(file) for problem in told.value.problems)


def test_an_unknown_key_is_no_error(home: Path) -> None:
    file = home / "knowledge" / "odd.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("documents: [a.md]\ncolour: red")
    assert registry.named("odd", home).documents == ("a.md",)


def test_those_of_loki_are_known_by_name_and_ours_come_first(home: Path) -> None:
    (home / "rags").mkdir(parents=True)
    (home / "rags" / "manual.yaml").write_text("embedding_model: x")
    recipe = registry.named("manual", home)
    assert recipe.upstream == home / "rags" / "manual.yaml"
    assert recipe.directory == home / "knowledge" / "manual.kb"
    (home / "knowledge").mkdir()
    (home / "knowledge" / "manual.yaml").write_text("documents: [a.md]")
    assert registry.names(home) == ["manual"]
    assert registry.named("manual", home).upstream is None


def test_a_directory_is_as_good_as_a_name(home: Path, tmp_path: Path) -> None:
    registry.make("handbook", ["docs"], home)
    by_name = registry.named("handbook", home)
    assert registry.named(str(by_name.directory), home) == by_name
    elsewhere = tmp_path / "x.kb"
    elsewhere.mkdir()
    with pytest.raises(UsageError, match=says("work.knowledge.registry._at.2")):
        registry.named(str(elsewhere), home)
    (elsewhere / "recipe.json").write_bytes(encoded(by_name))
    assert registry.named(str(elsewhere), home).documents == ("docs",)
