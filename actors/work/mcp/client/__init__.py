"""MCP client for both eras of the protocol and every link.

    connect      link, handshake and end of one connection; detection of downloads by `npx` and `uvx`
    handshake    detection of a server's protocol revision and capabilities
    client       calls, lists, results that are polled for, and notifications of changes
    questions    requests that a server sends in the middle of a call
    packages     packages of `npx` and `uvx`, installed once

May import `links` and `auth`. Start with `connect`.
"""
