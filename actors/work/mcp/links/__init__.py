"""Transports of messages: the pipes of a process, and two kinds of HTTP.

    link        interface between the protocol and its transports
    stdio       a child process, one message per line
    http        Streamable HTTP, in both eras, and HTTP with server-sent events, the transport of 2024-11-05
    mirrored    arguments that are also sent as HTTP headers
    texts       texts of errors

May import `auth`. Start with `link`.
"""
