"""Frames of the control channel as structs: the caller, the methods, and their parameters and results.

Frames are JSON-RPC 2.0 (`protocol.jsonrpc`). `method_structs` has the parameters and results of Callboard's own methods
(`_run/start`, `_actor/tree`, ...), `chat` those of conversations by lines, `resources` the resources that methods
return, and `acp` the Agent Client Protocol. `caller` has subjects and scopes, `errors` the numbers of errors on the
wire. `schema` lists the methods, and builds one JSON Schema of all of them.

The package imports other modules of `protocol/` and nothing above it. Names to know: `StartRun`, `RunInfo`, `Caller`.
Start with `method_structs`.
"""
