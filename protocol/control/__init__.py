"""What is said on the control channel: who calls, what they may ask for, what they get, as structs.

Frames are JSON-RPC 2.0 (`protocol.jsonrpc`). `own` has the parameters and results of our own methods (`_run/start`,
`_actor/tree`, ...), `things` what they speak of, `acp` those of the Agent Client Protocol, `caller` says who asks,
`errors` which number an error has on the wire. `schema` makes one JSON Schema of all of them.
"""
