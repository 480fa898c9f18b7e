"""What a person may write as the source of a bundle, and what becomes of each file, as a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from callboard.actors.work.bundles.layout import is_safe
from callboard.actors.work.bundles.plan import Fate, fates
from callboard.actors.work.bundles.source import read_source
from callboard.protocol.errors import UsageError


@pytest.mark.parametrize(
    ("text", "url", "ref", "name"),
    [
        ("https://example.org/team/agents.git", "https://example.org/team/agents.git", "", "agents"),
        ("https://example.org/team/agents#v1.2", "https://example.org/team/agents", "v1.2", "agents"),
        ("https://me@example.org:8443/a/b/", "https://me@example.org:8443/a/b/", "", "b"),
        ("ssh://git@example.org:22/a/b.git#feature/x", "ssh://git@example.org:22/a/b.git", "feature/x", "b"),
        ("git@example.org:team/agents.git", "git@example.org:team/agents.git", "", "agents"),
        ("git@example.org:agents#main", "git@example.org:agents", "main", "agents"),
        ("file:///srv/agents.git", "file:///srv/agents.git", "", "agents"),
    ],
)
def test_git_is_named_as_git_names_it(tmp_path: Path, text: str, url: str, ref: str, name: str) -> None:
    source = read_source(text, tmp_path)
    assert (source.url, source.ref, source.name, source.folder) == (url, ref, name, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nowhere",
        "-u",
        "--upload-pack=touch x",
        "ext::sh -c touch% x",
        "fd::3",
        "http://example.org/a/b",
        "git://example.org/a/b",
        "ftp://example.org/a",
        "https://-oProxyCommand=x/a",
        "ssh://-oProxyCommand=x/a",
        "ssh://git@-oProxyCommand=x/a",
        "git@-oProxyCommand=x:a",
        "-git@example.org:a",
        "https://me:secret@example.org/a/b",
        "https://ghp_0123456789abcdefghij0123456789@example.org/a/b",
        "https://example.org/a/b?access_token=0123",
        "https://example.org/a b",
        "https://example.org/a#--upload-pack=x",
        "https://example.org/a#-x",
        "https://example.org/a#a..b",
        "https://example.org/a#a:b",
        "https://example.org/a#a^{x}",
        "file://host/a",
        "\0",
    ],
)
def test_what_git_might_take_for_something_else_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_source(text, tmp_path)
    assert "secret" not in str(refused.value)


def test_a_directory_is_meant_by_its_path_and_with_a_ref_as_a_repository(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert read_source("mine", tmp_path).folder == tmp_path / "mine"
    assert read_source("./mine#main", tmp_path).url == (tmp_path / "mine").as_uri()


ODD = [
    "/a",
    "a/../b",
    "..",
    "a//b",
    "a/.git/config",
    "a/.GIT/x",
    "a\\b",
    "C:x",
    "a/b.",
    "a/b ",
    "a\nb",
    "a\x1bb",
    "\udc80",
    f"a/{'n' * 201}",
    "",
]


@pytest.mark.parametrize("path", ODD)
def test_a_path_that_may_lead_elsewhere_is_not_safe(path: str) -> None:
    assert not is_safe(path)


def test_a_usual_path_is_safe() -> None:
    assert all(map(is_safe, ["roles/a b.md", "agents/.shared/utils.sh", "agents/größe/tools.sh", "a/.gitignore"]))


@pytest.mark.parametrize(
    ("there", "recorded", "wanted", "fate"),
    [
        (None, None, "a", "new"),
        (None, "a", "a", "new"),
        ("a", None, "a", "same"),
        ("a", "b", "a", "same"),
        ("a", "a", "b", "changed"),
        ("x", "a", "b", "mine"),
        ("x", "a", "a", "mine"),
        ("x", None, "b", "taken"),
        ("a", "a", None, "gone"),
        ("x", "a", None, "left"),
        (None, "a", None, None),
    ],
)
def test_what_becomes_of_a_file(there: str | None, recorded: str | None, wanted: str | None, fate: Fate | None) -> None:
    def named(hash: str | None) -> dict[str, str]:
        return {} if hash is None else {"f": hash}

    assert fates(named(there), named(recorded), named(wanted)).get("f") == fate
