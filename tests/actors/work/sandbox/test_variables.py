"""Which of our variables a process in a sandbox has."""

from __future__ import annotations

import random
import string

import pytest

from callboard.actors.work.sandbox.variables import looks_secret, withheld

FAMILIES = (
    "PIP",
    "UV",
    "POETRY",
    "npm_config",
    "NPM",
    "NODE",
    "CARGO",
    "RUST",
    "GO",
    "GEM",
    "BUNDLE",
    "CONDA",
    "PYTHON",
)
FAMILIES += (
    "JAVA",
    "NIX",
    "LLM",
    "CALLBOARD",
    "LOKI",
    "XDG",
    "VIRTUAL_ENV",
    "TERM_PROGRAM",
    "HF",
    "GIT_AUTHOR",
    "ASDF",
)


def test_a_variable_that_is_not_on_the_list_is_withheld_whatever_family_its_name_is_of() -> None:
    chance = random.Random(4)
    for _ in range(2_000):
        name = f"{chance.choice(FAMILIES)}_{''.join(chance.choices(string.ascii_uppercase, k=chance.randint(4, 9)))}X"
        assert withheld({name: "hunter2"}, ()) == {name}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PIP_INDEX_URL", "https://token@index.example/simple"),
        ("PIP_EXTRA_INDEX_URL", "https://pypi.org/simple https://user:pass@index.example/simple"),
        ("PIP_INDEX_URL", "https://index.example/a8Fk2l9QpLm3/simple"),
        ("UV_INDEX_URL", "https://index.example/simple?token=x"),
        ("UV_INDEX", "private=https://x@index.example/simple"),
        ("npm_config_registry", "https://npm.example/t0k3n/npm/"),
        ("GOPROXY", "https://me@proxy.example,direct"),
        ("http_proxy", "http://token@proxy:3128"),
        ("HTTPS_PROXY", "http://me:secret@proxy:3128"),
        ("MAKEFLAGS", "-j TOKEN=ghp_0123456789"),
        ("NODE_OPTIONS", "--token=abc"),
        ("PATH", "/bin:https://a:b@c/"),
    ],
)
def test_an_address_or_a_value_that_may_hold_a_token_is_withheld(name: str, value: str) -> None:
    assert withheld({name: value}, ()) == {name}
    assert withheld({name: value}, (name,)) == frozenset()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PIP_INDEX_URL", "https://pypi.org/simple"),
        ("PIP_INDEX_URL", "http://127.0.0.1:3141/root/pypi/+simple/"),
        ("PIP_EXTRA_INDEX_URL", "https://pypi.org/simple https://index.example:8443/simple/"),
        ("npm_config_registry", "https://registry.npmjs.org/"),
        ("GOPROXY", "https://proxy.golang.org,direct"),
        ("HTTPS_PROXY", "http://proxy.example:3128"),
        ("UV_CACHE_DIR", "/cache/uv"),
        ("LC_ALL", "C.UTF-8"),
        ("PWD", "/home/me"),
        ("JAVA_HOME", "/usr/lib/jvm"),
        ("GOFLAGS", "-mod=mod"),
        ("npm_config_prefix", "/opt/node"),
    ],
)
def test_what_programs_need_is_handed_over(name: str, value: str) -> None:
    assert withheld({name: value}, ()) == frozenset()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CALLBOARD_CLUSTER", "host=db user=u password=hunter3"),
        ("CALLBOARD_CLUSTER", "postgresql://db/x"),
        ("STORE", "host=db user=u password = hunter3"),
        ("LLM_PW", "x"),
        ("LOKI_PIN", "x"),
        ("npm_config_otp", "x"),
        ("NODE_PRIVATE", "x"),
        ("PLACE", "ghp_abcdefgh"),
    ],
)
def test_a_secret_is_one_also_where_its_file_names_it(name: str, value: str) -> None:
    assert looks_secret(name, value)
    assert withheld({name: value}, (), [name]) == {name}
