"""mcp.json: what is understood, what is refused, and that a mistake costs the server it is in and no other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import has_message, says

from callboard.protocol.errors import UsageError
from callboard.protocol.mcp.config import McpConfig, OAuth, Server, ToolList, read_mcp

FULL = """\
// what callboard starts
{
  "$schema": "./mcp.schema.json",
  "mcpServers": {
    "time": {"command": "uvx", "args": ["mcp-server-time", "--local-timezone=Europe/Berlin"]},
    "docs": {
      "url": "https://example.org/mcp", "headers": {"Authorization": "Bearer ${DOCS_TOKEN}", "X-Level": 3},
    },
    /* everything */
    "all keys": {
      "type": "stdio", "command": "srv", "args": ["-v"], "cwd": "/tmp", "description": "d", "inherit_env": false,
      "env": {"TEXT": "a", "YES": true, "COUNT": 3, "RATE": 0.50},
      "share": "per-run", "tools": {"allow": ["read_*"], "deny": ["read_secret"]}, "trust": "none",
      "disabled": true, "idle_timeout_seconds": 0, "timeout_seconds": 5, "start_timeout_seconds": 1.5,
      "elicitation": false, "sampling": "ask", "roots": ["/srv"], "max_message_bytes": 1000, "x-note": "mine",
    },
  },
}
"""


def read(*entries: str, file: str = "mcp.json") -> McpConfig:
    """The servers of these members of `mcpServers`, one a line."""
    return read_mcp('{"mcpServers": {\n' + ",\n".join(entries) + "}}", file)


def one(entry: str) -> Server:
    """The only server, called `s`, of a file without problems."""
    config = read(f'"s": {entry}')
    assert config.problems == ()
    return config.servers["s"]


def texts(config: McpConfig) -> list[str]:
    return [str(problem) for problem in config.problems]


def test_a_full_file_is_read() -> None:
    config = read_mcp(FULL, "mcp.json")
    assert texts(config) == []
    assert config.servers == {
        "time": Server(
            name="time",
            type="stdio",
            command="uvx",
            args=("mcp-server-time", "--local-timezone=Europe/Berlin"),
            where="mcp.json:5",
        ),
        "docs": Server(
            name="docs",
            type="http",
            url="https://example.org/mcp",
            headers={"Authorization": "Bearer ${DOCS_TOKEN}", "X-Level": "3"},
            where="mcp.json:6",
        ),
        "all keys": Server(
            name="all keys",
            type="stdio",
            command="srv",
            args=("-v",),
            cwd="/tmp",
            description="d",
            inherit_env=False,
            env={"TEXT": "a", "YES": "true", "COUNT": "3", "RATE": "0.50"},
            share="per-run",
            tools=ToolList(allow=("read_*",), deny=("read_secret",)),
            trust="none",
            disabled=True,
            idle_timeout_seconds=0,
            timeout_seconds=5,
            start_timeout_seconds=1.5,
            elicitation=False,
            sampling="ask",
            roots=("/srv",),
            max_message_bytes=1000,
            where="mcp.json:10",
        ),
    }
    assert config.names == ("time", "docs")


@pytest.mark.parametrize("text", ["{}", '{"mcpServers": {}}', '\ufeff{"mcpServers": {}}', '{"$schema": "x"}'])
def test_a_file_without_servers_is_fine(text: str) -> None:
    assert read_mcp(text, "mcp.json") == McpConfig()


# --- Loki's texts -----------------------------------------------------------------------------------------

CASE_94 = [
    ('{"type": "stdio"}', "MCP server 'n' is missing a \"command\" field (required for stdio transport)"),
    ('{"type": "http"}', 'MCP server \'n\' has type "http" but is missing a "url" field'),
    (
        '{"type": "http", "url": "http://x", "command": "x"}',
        "MCP server 'n' has type \"http\" but also specifies stdio fields (command/args/cwd)",
    ),
    (
        '{"type": "stdio", "command": "x", "url": "http://x"}',
        "MCP server 'n' has type \"stdio\" but also specifies remote fields (url/headers)",
    ),
    ('{"args": ["x"]}', 'MCP server \'n\' has neither a "command" nor a "url" field'),
]


@pytest.mark.parametrize(("entry", "text"), CASE_94)
def test_case_94_an_entry_that_does_not_fit_its_type_is_refused(entry: str, text: str) -> None:
    config = read(f'"n": {entry}', '"good": {"command": "x"}')
    [problem] = config.problems
    assert (problem.severity, problem.line) == ("error", 2)
    assert problem.message == text
    assert problem.hint
    assert (list(config.servers), config.broken) == (["good"], {"n": problem})


def test_case_94_an_unknown_key_is_a_warning_where_loki_refuses_it() -> None:
    config = read('"n": {"command": "x", "arg": ["y"]}')
    [problem] = config.problems
    assert (problem.severity, problem.line, problem.column) == ("warning", 2, 23)
    assert problem.message == "unknown key `arg` in MCP server 'n'; it has no effect"
    assert has_message(problem.hint, "protocol.problems.suggestion", name="args")
    assert config.names == ("n",)


@pytest.mark.parametrize(("entry", "kind"), [('{"command": "x"}', "stdio"), ('{"url": "http://x"}', "http")])
def test_case_94_a_missing_type_is_inferred_where_loki_refuses_it(entry: str, kind: str) -> None:
    assert one(entry).type == kind


# --- files of other programs ------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["http", "streamable-http", "streamableHttp", "streamable_http"])
def test_every_spelling_of_http_is_http(word: str) -> None:
    assert one(f'{{"type": "{word}", "url": "http://x/mcp"}}').type == "http"


@pytest.mark.parametrize("key", ["url", "serverUrl", "httpUrl"])
@pytest.mark.parametrize("kind", ["type", "transport"])
def test_the_names_that_other_programs_have_for_keys_are_understood(key: str, kind: str) -> None:
    server = one(f'{{"{kind}": "sse", "{key}": "http://x/sse"}}')
    assert (server.type, server.url) == ("sse", "http://x/sse")


def test_a_local_server_is_stdio() -> None:
    assert one('{"type": "local", "command": "x"}').type == "stdio"


@pytest.mark.parametrize("nothing", ['"args": []', '"command": ""', '"cwd": null', '"env": {}'])
def test_keys_that_say_nothing_contradict_nothing(nothing: str) -> None:
    assert one(f'{{"type": "http", "url": "http://x", {nothing}}}').type == "http"


def test_servers_may_be_called_servers() -> None:
    config = read_mcp('{"servers": {"s": {"command": "x"}}, "inputs": []}', "mcp.json")
    assert config.names == ("s",)
    assert texts(config) == ["mcp.json:1:38: warning: unknown key `inputs` beside `servers`; it has no effect"]


def test_servers_at_the_top_level_are_read_with_a_warning() -> None:
    config = read_mcp('{"s": {"command": "x"}, "t": {"serverUrl": "http://x"}}', "mcp.json")
    assert config.names == ("s", "t")
    [problem] = config.problems
    assert (problem.severity, problem.code) == ("warning", "no_root_key")


def test_a_list_of_tools_is_the_tools_that_are_allowed() -> None:
    assert one('{"command": "x", "tools": ["read_*"]}').tools == ToolList(allow=("read_*",))


@pytest.mark.parametrize(("written", "seconds", "warned"), [("60", 60, False), ("60000", 60, True)])
def test_a_long_timeout_is_meant_in_milliseconds(written: str, seconds: float, warned: bool) -> None:
    config = read(f'"s": {{"command": "x", "timeout": {written}}}')
    assert config.servers["s"].timeout_seconds == seconds
    assert [problem.code for problem in config.problems] == ["taken_as"] * warned


@pytest.mark.parametrize("key", ["alwaysAllow", "autoApprove"])
def test_approvals_of_other_programs_are_no_permissions_of_ours(key: str) -> None:
    config = read(f'"s": {{"command": "x", "{key}": ["get"]}}')
    [problem] = config.problems
    assert (problem.severity, problem.code) == ("warning", "ignored_key")
    assert has_message(str(problem), "protocol.mcp.config._Reader.understood.2", path="s")
    assert config.servers["s"].trust == "hints"


@pytest.mark.parametrize(
    ("keys", "tools"),
    [
        ('"disabledTools": ["a"]', ToolList(deny=("a",))),
        ('"excludeTools": ["a"], "includeTools": ["b*"]', ToolList(allow=("b*",), deny=("a",))),
        ('"enabledTools": ["b"], "tools": {"deny": ["c"]}', ToolList(allow=("b",), deny=("c",))),
    ],
)
def test_lists_of_tools_of_other_programs_are_understood(keys: str, tools: ToolList) -> None:
    config = read(f'"s": {{"command": "x", {keys}}}')
    assert config.servers["s"].tools == tools
    assert config.problems == ()


def test_our_own_list_of_tools_wins_over_its_other_name() -> None:
    config = read('"s": {"command": "x", "disabledTools": ["a"], "tools": {"deny": ["b"]}}')
    assert config.servers["s"].tools == ToolList(deny=("b",))
    assert [problem.code for problem in config.problems] == ["ignored_key"]


@pytest.mark.parametrize(
    "entry",
    [
        '{"url": "http://x", "headers": {"Authorization": "Basic ${input:auth}"}}',
        '{"command": "x", "env": {"KEY": "${input:key}"}}',
        '{"command": "x", "args": ["--token=${input:token}"]}',
        '{"command": "x", "args": ["${command:pick}"]}',
    ],
)
def test_what_an_editor_would_ask_for_is_an_error_of_the_entry(entry: str) -> None:
    config = read(f'"s": {entry}', '"t": {"command": "y"}')
    assert list(config.servers) == ["t"]
    [problem] = config.problems
    assert (problem.severity, problem.code, problem.line) == ("error", "bad_value", 2)


def test_our_own_key_wins_over_its_other_name() -> None:
    config = read('"s": {"url": "http://ours", "serverUrl": "http://theirs"}')
    assert config.servers["s"].url == "http://ours"
    assert texts(config) == ["mcp.json:2:29: warning: `serverUrl` has no effect beside `url`"]


# --- mistakes ---------------------------------------------------------------------------------------------

MISTAKES = [
    ('{"command": "x", "args": "y"}', "`mcpServers.s.args` is the text 'y' (expected a list of texts)"),
    ('{"command": "x", "args": ["-p", 80]}', "`mcpServers.s.args[1]` is the number 80 (expected text)"),
    ('{"command": ["x"]}', "`mcpServers.s.command` is a list (expected text)"),
    ('{"command": "x", "env": ["A=1"]}', "`mcpServers.s.env` is a list (expected an object with texts)"),
    ('{"command": "x", "env": {"A": null}}', "`mcpServers.s.env.A` is nothing (expected text, a number, true or"),
    ('{"command": "x", "env": {"A": {}}}', "`mcpServers.s.env.A` is a mapping"),
    ('{"command": "x", "env": {"A=B": "c"}}', "an environment variable can't be called 'A=B'"),
    ('{"command": "x", "args": ["\\u0000"]}', "`args[0]` has a NUL character in it"),
    ('{"command": "npx -y srv"}', 'write "command": "npx", "args": ["-y", "srv"].'),
    ('{"url": "localhost:80/mcp"}', "`url` is 'localhost:80/mcp'\n    write an address that begins with http://"),
    ('{"url": "http://x", "headers": {"A B": "c"}}', "a header can't be called 'A B'"),
    ('{"url": "http://x", "headers": {"A": "b\\r\\nC: d"}}', "the value of header A has a line break"),
    ('{"url": "http://x", "command": "y"}', 'has both "command" and "url"'),
    ('{"url": "http://x", "type": "htp"}', "`mcpServers.s.type` is the text 'htp' (expected one of stdio, http, sse)"),
    ('{"url": "http://x", "type": 3}', "`mcpServers.s.type` is the number 3 (expected one of stdio, http, sse)"),
    (
        '{"command": "x", "share": "perrun"}',
        "(expected one of never, per-agent, per-run, pool)\n    did you mean 'per-run'?",
    ),
    ('{"command": "x", "timeout_seconds": 0}', "(expected a number greater than 0)"),
    ('{"command": "x", "timeout": "60s"}', "`mcpServers.s.timeout_seconds` is the text '60s' (expected a number)"),
    ('{"command": "x", "idle_timeout_seconds": -1}', "(expected a number of at least 0)"),
    ('{"command": "x", "max_message_bytes": 0}', "(expected a whole number of at least 1)"),
    ('{"command": "x", "disabled": "yes"}', "is the text 'yes' (expected true or false)"),
    ("null", "`mcpServers.s` is nothing (expected an object"),
    ('["x"]', "`mcpServers.s` is a list (expected an object"),
]


@pytest.mark.parametrize(("entry", "words"), MISTAKES)
def test_a_mistake_costs_the_server_it_is_in(entry: str, words: str) -> None:
    config = read('"first": {"command": "a"}', f'"s": {entry}', '"last": {"command": "b"}')
    assert config.names == ("first", "last")
    [problem] = config.problems
    assert (problem.severity, problem.line) == ("error", 3)
    assert words in str(problem)
    with pytest.raises(UsageError, match=says("protocol.mcp.config.McpConfig.get.2", name="s", why="mcp.json:3:…")):
        config.get("s")


@pytest.mark.parametrize("name", ["", "all", " s", "a,b", "a\\nb"])
def test_a_name_that_no_list_could_hold_is_refused(name: str) -> None:
    config = read(f'"{name}": {{"command": "x"}}')
    assert config.servers == {}
    assert [problem.code for problem in config.problems] == ["bad_name"]


def test_every_mistake_of_a_file_is_told_at_once_by_line() -> None:
    config = read('"a": {"command": 1, "args": 2}', '"b": {}', '"c": {"command": "x", "warm": 1}')
    assert [problem.line for problem in config.problems] == [2, 2, 3, 4]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ('{"command": "x", "warm": true, "share": "never"}', "`warm` has no effect on MCP server 's'"),
        ('{"url": "http://x", "env": {"A": "b"}}', "`env` has no effect on MCP server 's'"),
    ],
)
def test_what_has_no_effect_is_warned_about(entry: str, words: str) -> None:
    config = read(f'"s": {entry}')
    [problem] = config.problems
    assert words in str(problem)
    assert problem.severity == "warning"
    assert config.names == ("s",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "1:1: error: the file holds a list"),
        ('{"mcpServers": []}', "1:16: error: `mcpServers` is a list"),
        ('{"theme": "dark"}', "1:1: error: the file has no `mcpServers`"),
        ('{"mcpServers": {"a": {}', "error: the `{` of line 1 is not closed"),
        ("", "error: the file is empty"),
    ],
)
def test_a_file_that_can_not_be_used_says_so_to_whoever_wants_a_server(text: str, words: str) -> None:
    config = read_mcp(text, "mcp.json")
    assert words in texts(config)[0]
    with pytest.raises(UsageError, match=says("protocol.mcp.config.McpConfig.get.2", name="a", why="mcp.json:1…")):
        config.get("a")


def test_an_unknown_server_comes_with_the_nearest_name_or_all_of_them() -> None:
    config = read('"github": {"command": "x"}', '"off": {"command": "x", "disabled": true}', '"bad": {}')
    assert config.get("github").command == "x"
    for name, words in {
        "gihub": "there is no MCP server 'gihub' in mcp.json; did you mean 'github'?",
        "zzz": "there is no MCP server 'zzz' in mcp.json; there is github",
        "off": "MCP server 'off' is disabled (mcp.json:3); remove its \"disabled\" to use it",
    }.items():
        with pytest.raises(UsageError) as caught:
            config.get(name)
        assert str(caught.value) == words
    with pytest.raises(UsageError, match=says("protocol.mcp.config.McpConfig.get.4", name="a", file="mcp.json")):
        McpConfig().get("a")


ODD: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 5000) | st.sampled_from(["", "stdio", "http", "http://x", "a b", "*"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["A", "", "allow", "deny"]), inner),
    max_leaves=4,
)
KEYS = [*Server.__struct_fields__, "transport", "serverUrl", "timeout", "autoApprove", "x-y", "zzz"]


@given(st.dictionaries(st.sampled_from(["s", "all", ""]), st.dictionaries(st.sampled_from(KEYS), ODD) | ODD))
def test_whatever_stands_in_an_entry_it_is_a_server_or_is_told(entries: dict[str, Any]) -> None:
    config = read_mcp(json.dumps({"mcpServers": entries}), "mcp.json")
    assert {*config.servers, *config.broken} == {*entries}
    assert config.servers.keys().isdisjoint(config.broken)
    for server in config.servers.values():
        assert bool(server.command) == (server.type == "stdio") != bool(server.url)
        assert all(isinstance(text, str) for text in server.env.values())


def test_names_of_which_one_begins_like_the_tools_of_the_other_are_warned_of() -> None:
    config = read_mcp('{"mcpServers": {"a__b": {"command": "x"},\n"a": {"command": "y"}, "ab": {"command": "z"}}}', "m")
    (problem,) = config.problems
    assert (problem.severity, problem.code, problem.line) == ("warning", "names_overlap", 2)
    assert has_message(problem.message, "protocol.mcp.config._Reader.check_name", longer="a__b", shorter="a", begin="b")
    assert set(config.servers) == {"a__b", "a", "ab"}


# --- how a server is signed in to


@pytest.mark.parametrize(
    ("key", "given"),
    [
        ("oauth", {"clientId": "c", "clientSecret": "s", "scopes": ["a", "b"], "callbackPort": 8080}),
        ("oauth", {"client_id": "c", "client_secret": "s", "scope": "a  b", "callback_port": 8080}),
        ("auth", {"CLIENT_ID": "c", "CLIENT_SECRET": "s", "scopes": ["a", "b"], "callbackPort": 8080}),
    ],
)
def test_how_it_is_signed_in_to_as_this_and_other_programs_write_it(key: str, given: Any) -> None:
    server = one(json.dumps({"url": "https://x.example/mcp", key: given}))
    assert server.oauth == OAuth(client_id="c", client_secret="s", scopes=("a", "b"), callback_port=8080)
    assert server.sign_in == server.oauth


def test_every_server_over_http_may_want_it_unless_its_entry_says_otherwise() -> None:
    assert one('{"url": "https://x.example/mcp"}').sign_in == OAuth()
    assert one('{"url": "https://x.example/mcp", "headers": {"X-Key": "k"}}').sign_in == OAuth()
    assert one('{"url": "https://x.example/mcp", "oauth": false}').sign_in is None
    assert one('{"url": "https://x.example/mcp", "headers": {"authorization": "k"}}').sign_in is None
    assert one('{"command": "x"}').sign_in is None


@pytest.mark.parametrize(
    ("oauth", "words"),
    [
        ({"redirectUri": "https://evil.example/"}, "an address of this machine"),
        ({"redirectUri": "http://localhost.evil.example/"}, "an address of this machine"),
        ({"redirectUri": "http://localhost:1/x", "callbackPort": 1}, "remove one of them"),
        ({"clientSecret": "s"}, 'add "clientId"'),
        ({"scopes": ["a b"]}, "'a b' is not a valid scope"),
        ({"scopes": ['a"']}, "is not a valid scope"),
        ({"authServerMetadataUrl": "auth.example"}, "begins with https://"),
        ({"clientMetadataUrl": "http://x.example/c.json"}, "from an https:// address only"),
        ({"callbackPort": 70000}, "callbackPort"),
    ],
)
def test_what_can_t_be_signed_in_with_is_told_with_its_line(oauth: Any, words: str) -> None:
    config = read(json.dumps({"s": {"url": "https://x.example/mcp", "oauth": oauth}})[1:-1])
    (problem,) = config.problems
    assert problem.severity == "error"
    assert problem.line == 2
    assert words in str(problem)
    assert "s" in config.broken


@pytest.mark.parametrize(
    "entry", ['{"command": "x", "oauth": {}}', '{"url": "https://x", "headers": {"Authorization": "x"}, "oauth": {}}']
)
def test_where_it_has_no_effect_that_is_told(entry: str) -> None:
    config = read(f'"s": {entry}')
    assert [problem.code for problem in config.problems] == ["ignored_key"]
    assert "s" in config.servers
