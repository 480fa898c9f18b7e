"""Frames of the control channel as structs: the caller, the methods, and their parameters and results.

Frames are JSON-RPC 2.0 (`protocol.jsonrpc`). `own` has the parameters and results of Callboard's own methods
(`_run/start`, `_actor/tree`, ...), `things` the resources that they return, and `acp` the Agent Client Protocol.
`caller` has subjects and scopes, `errors` the numbers of errors on the wire. `schema` builds one JSON Schema of all
of them. Start with `own`: the class `StartRun` is the parameters of `_run/start`, and so on.
"""
