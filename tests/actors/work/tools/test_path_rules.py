"""Which paths a pattern means, however they are written and wherever links lead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from callboard.actors.work.tools.rules import PathContext, PathRule, folds, forms_of
from callboard.protocol.permissions import PermissionRule, Verdict


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a secret, and with links of all kinds; another directory beside it."""
    project = tmp_path / "project"
    for name in ("src/a.py", "secrets/deep/key", ".env", "private/diary"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(name)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "note").write_text("note")
    links = {
        "src/l": "../secrets",
        "src/out": str(outside),
        "src/file": "../.env",
        "docs": "private",
        "open": "src",
        "round": "round",
    }
    for name, target in links.items():
        (project / name).symlink_to(target)
    return project


def verdict(project: Path, text: str, **rule: str | tuple[str, ...]) -> Verdict | None:
    here = PathContext.of(project)
    lists = {name: (given,) if isinstance(given, str) else given for name, given in rule.items()}
    return PathRule.of(PermissionRule(**lists), here).verdict(forms_of(text, here))


@pytest.mark.parametrize(
    "path",
    [
        "secrets/deep/key",
        "./secrets/../secrets/deep/key",
        "src/../secrets/deep/key",
        "{project}/secrets/deep/key",
        "/{project}/secrets//deep/key",
        "{project}/../project/secrets/deep/key",
        "src/l/deep/key",
        "open/l/deep/key",
        "src/l/",
        "src/l/new/file",
        "secrets",
        "secrets/",
        "secrets/.",
        "secrets/new/file",
        "src/l/../secrets/deep/key",
        "/proc/self/root{project}/secrets/deep/key",
    ],
)
@pytest.mark.parametrize(
    "pattern",
    ["secrets/*", "secrets", "secrets/", "./secrets/*", "{project}/secrets/*", "../project/secrets/*", "src/l/*"],
)
def test_no_way_of_writing_it_leads_past_a_deny(project: Path, path: str, pattern: str) -> None:
    text = path.format(project=project)
    assert verdict(project, text, deny=pattern.format(project=project)) == "deny"
    assert verdict(project, text, ask=pattern.format(project=project)) == "ask"


@pytest.mark.parametrize("path", ["src/a.py", "secrets2/key", "src/secrets/key", "note", ".", "", "..", "secretsx"])
def test_a_deny_means_no_other_path(project: Path, path: str) -> None:
    assert verdict(project, path, deny=("secrets/*", ".env", "{a,b}")) is None


@pytest.mark.parametrize("path", ["docs/diary", "private/diary", "docs", "private", "docs/new"])
@pytest.mark.parametrize("pattern", ["docs/*", "docs", "private/*"])
def test_a_directory_behind_a_link_is_denied_under_both_of_its_names(project: Path, path: str, pattern: str) -> None:
    assert verdict(project, path, deny=pattern) == "deny"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("src/a.py", "allow"),
        ("src/new/file", "allow"),
        ("src", "allow"),
        ("{project}/src/a.py", "allow"),
        ("src/l/deep/key", None),
        ("src/l/new", None),
        ("src/file", None),
        ("src/out/note", None),
        ("src/out/new", None),
        ("src/../secrets/deep/key", None),
        ("src/out/../../project/src/a.py", None),
        ("open/a.py", None),
        ("{project}", None),
    ],
)
def test_an_allow_holds_only_where_the_path_stays_in_what_is_allowed(
    project: Path, path: str, said: str | None
) -> None:
    assert verdict(project, path.format(project=project), allow="src/*") == said


def test_a_link_into_what_is_allowed_is_itself_no_part_of_it(project: Path) -> None:
    """What `fs_rm` removes is the link, which stands elsewhere."""
    (project / "other").mkdir()
    (project / "other" / "to-a").symlink_to("../src/a.py")
    (project / "src" / "d").symlink_to("../other")
    assert verdict(project, "src/d/to-a", allow="src/*") is None


def test_a_run_directory_that_was_given_by_a_link_is_the_same_directory(project: Path, tmp_path: Path) -> None:
    alias = tmp_path / "alias"
    alias.symlink_to(project)
    for text in ("secrets/deep/key", f"{alias}/secrets/deep/key", f"{project}/secrets/deep/key"):
        for pattern in ("secrets/*", f"{alias}/secrets/*", f"{project}/secrets/*"):
            assert verdict(alias, text, deny=pattern) == "deny"
    for text in ("src/a.py", f"{alias}/src/a.py", f"{project}/src/a.py"):
        assert verdict(alias, text, allow="src/*") == "allow"


def test_the_longest_pattern_decides_and_of_two_as_long_the_stricter(project: Path) -> None:
    assert verdict(project, "src/a.py", deny="*", allow="src/*") == "allow"
    assert verdict(project, ".env", deny="*", allow="src/*") == "deny"
    assert verdict(project, "src/a.py", allow="src/*", deny="src/a.py") == "deny"
    assert verdict(project, "src/a.py", allow="src/*", ask="src/?") == "allow"
    assert verdict(project, "src/a.py", allow="src/*", ask="*a.py", deny="?????") == "ask"


def test_a_wildcard_at_the_beginning_means_any_place(project: Path) -> None:
    for text in (".env", "src/.env", "/elsewhere/.env", ".env/below"):
        assert verdict(project, text, deny="*.env") == "deny"
    assert verdict(project, "/anywhere", deny="*") == "deny"


def test_a_tilde_in_a_pattern_is_the_home_directory(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project))
    assert verdict(Path("/"), f"{project}/secrets/deep/key", deny="~/secrets/*") == "deny"
    assert verdict(Path("/"), f"{project}/secrets/deep/key", deny="~") == "deny"
    assert verdict(Path("/"), f"{project}/src", deny="~/secrets/*") is None


@pytest.mark.parametrize("name", ["a[b]", "a(b", "a+b", "a.b", "a\nb", "a{b,c}", "a\\b", "a|b"])
def test_names_that_mean_something_elsewhere_mean_themselves(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name
    directory.mkdir()
    assert verdict(directory, "x", deny="x") == "deny"
    assert verdict(tmp_path, f"{name}/x", deny=f"{name}/*") == "deny"
    assert verdict(tmp_path, f"{name}/x", deny="ab/*") is None


def test_what_can_be_no_path_is_never_allowed(project: Path) -> None:
    for text in ("src/a\0", "src/\ud800"):
        assert forms_of(text, PathContext.of(project)) == ()
        assert verdict(project, text, allow="*") is None


def test_links_that_go_round_are_judged_and_don_t_hang(project: Path) -> None:
    assert verdict(project, "round", deny="round") == "deny"
    assert verdict(project, "round/x", deny="secrets/*") is None


def test_where_case_makes_no_difference_it_makes_none_to_a_deny(project: Path) -> None:
    """A second name of the same file that differs in case alone is what a file system that folds case shows."""
    here = PathContext.of(project)
    rule = PathRule.of(PermissionRule(deny=(".env", "secrets/*"), allow=("src/*",)), here)
    real = forms_of(".ENV", here)
    assert not folds(str(project / ".ENV"))
    assert rule.verdict(real, fold=False) is None
    os.link(project / ".env", project / ".ENV")
    assert folds(str(project / ".ENV"))
    assert rule.verdict(real, fold=True) == "deny"
    assert rule.verdict(forms_of("Secrets/KEY", here), fold=True) == "deny"
    assert rule.verdict(forms_of("SRC/a.py", here), fold=True) is None
