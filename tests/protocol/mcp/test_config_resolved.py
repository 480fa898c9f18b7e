"""What the environment puts into a server, which servers an agent means, and what is left of our environment."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import says

from callboard.protocol.errors import ConfigError
from callboard.protocol.mcp.config import OAuth, Server, ToolList, resolved, spelled_out

STDIO = Server(
    name="s",
    type="stdio",
    command="${BIN:-srv}",
    args=("--key", "{{KEY}}", "$KEY ${env:KEY}"),
    env={"A": "${KEY}/${DIR:-tmp}"},
    cwd="/${DIR:-tmp}",
    where="mcp.json:3",
)
HTTP = Server(name="h", type="http", url="${BASE}/mcp", headers={"Authorization": "Bearer {{ TOKEN }}"})


def test_references_are_replaced_everywhere() -> None:
    server = resolved(STDIO, {"KEY": "k"})
    assert (server.command, server.args) == ("srv", ("--key", "k", "$KEY k"))
    assert (server.env, server.cwd) == ({"A": "k/tmp"}, "/tmp")
    server = resolved(HTTP, {"BASE": "https://x", "TOKEN": "t"})
    assert (server.url, server.headers) == ("https://x/mcp", {"Authorization": "Bearer t"})


def test_what_a_name_stands_for_is_not_looked_through_again() -> None:
    assert resolved(STDIO, {"KEY": "${HOME} {{KEY}}"}).args[1] == "${HOME} {{KEY}}"


def test_all_names_that_stand_for_nothing_are_told_with_their_keys_and_the_remedy() -> None:
    with pytest.raises(ConfigError) as caught:
        resolved(STDIO, {"KEY": ""})
    assert str(caught.value) == (
        "MCP server 's' (mcp.json:3): `args[1]` needs {{KEY}}, which is not set; export KEY=..."
    )
    with pytest.raises(ConfigError) as caught:
        resolved(HTTP, {})
    assert str(caught.value) == (
        "MCP server 'h': `url` needs ${BASE} and `headers.Authorization` needs {{ TOKEN }}, which are not set; "
        "export BASE=... TOKEN=..."
    )


@pytest.mark.parametrize("token", ["p4ss\n", "p4\x00ss", "p4ßs"])
def test_a_value_that_no_header_can_have_is_refused_and_not_told(token: str) -> None:
    with pytest.raises(ConfigError, match="value of header Authorization " + says("protocol.mcp.config")) as caught:
        resolved(HTTP, {"BASE": "http://x", "TOKEN": token})
    assert "p4" not in str(caught.value)


def test_an_address_must_be_one_once_it_is_filled_in() -> None:
    with pytest.raises(ConfigError, match=says("protocol.mcp.config.resolved.5", url="${BASE}/mcp")) as caught:
        resolved(HTTP, {"BASE": "p4ss", "TOKEN": "t"})
    assert "p4" not in str(caught.value)


def test_a_command_must_not_vanish() -> None:
    server = Server(name="s", type="stdio", command="${BIN:-}")
    with pytest.raises(ConfigError, match=says("protocol.mcp.config.resolved.3", command="${BIN:-}")):
        resolved(server, {})


@given(st.text(), st.dictionaries(st.sampled_from("AB"), st.text(min_size=1)))
def test_text_without_references_stays_as_it_is(text: str, environ: dict[str, str]) -> None:
    if "${" not in text and "{{" not in text:
        assert resolved(Server(name="s", type="stdio", command=text), environ).command == text


def test_a_server_gets_our_environment_and_its_own_above_it() -> None:
    ours = {"PATH": "/bin", "LC_ALL": "C", "XDG_RUNTIME_DIR": "/run", "OPENAI_API_KEY": "k", "A": "ours"}
    server = Server(name="s", type="stdio", env={"A": "its"})
    assert server.environment(ours) == {**ours, "A": "its"}


def test_without_inheritance_only_the_essentials_and_its_own_are_left() -> None:
    ours = {"PATH": "/bin", "LC_ALL": "C", "XDG_RUNTIME_DIR": "/run", "OPENAI_API_KEY": "k", "HOMEBREW": "x"}
    server = Server(name="s", type="stdio", env={"A": "its"}, inherit_env=False)
    assert server.environment(ours) == {"PATH": "/bin", "LC_ALL": "C", "XDG_RUNTIME_DIR": "/run", "A": "its"}


@pytest.mark.parametrize(
    ("tools", "admitted"),
    [
        (ToolList(), ["read_a", "read_b", "write"]),
        (ToolList(allow=("read_*",)), ["read_a", "read_b"]),
        (ToolList(allow=()), []),
        (ToolList(deny=("*_b", "write")), ["read_a"]),
        (ToolList(allow=("read_*",), deny=("read_a",)), ["read_b"]),
    ],
)
def test_a_tool_is_there_if_it_is_allowed_and_not_denied(tools: ToolList, admitted: list[str]) -> None:
    assert [name for name in ("read_a", "read_b", "write") if tools.admits(name)] == admitted


@pytest.mark.parametrize(
    ("names", "meant"),
    [
        ((), []),
        (("git", "time"), ["git", "time"]),
        (("web", "git"), ["fetch", "search", "git"]),
        (("git", "all", "git"), ["git", "time", "fetch"]),
        (("every",), ["git", "time", "fetch"]),
        (("unknown",), ["unknown"]),
    ],
)
def test_aliases_and_all_stand_for_servers_each_named_once(names: tuple[str, ...], meant: list[str]) -> None:
    assert spelled_out(names, {"web": "fetch, search,", "every": "all"}, ["git", "time", "fetch"]) == meant


def test_references_in_how_it_is_signed_in_to_are_replaced() -> None:
    oauth = OAuth(client_id="${ID}", client_secret="{{SECRET}}", scopes=("${no}",))
    server = resolved(
        msgspec.structs.replace(HTTP, oauth=oauth), {"BASE": "https://b", "TOKEN": "t", "ID": "i", "SECRET": "s"}
    )
    assert server.oauth == OAuth(client_id="i", client_secret="s", scopes=("${no}",))
    with pytest.raises(ConfigError, match=r"`oauth.clientSecret` needs \{\{SECRET\}\}"):
        resolved(msgspec.structs.replace(HTTP, oauth=oauth), {"BASE": "https://b", "TOKEN": "t", "ID": "i"})
    assert "s3cret" not in repr(OAuth(client_secret="s3cret"))
