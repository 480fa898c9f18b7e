"""The Agent Client Protocol on a connection: editors talk with agents whose conversations are kept as sessions.

`side` answers the methods, `prompting` plays one prompt as a run of the hub, `updates` maps the run's events to ACP's,
`replay` the earlier messages, `asking` puts questions to the client, `opened` is a session with the client's settings,
`surroundings` the client's directories and servers, `stdio` the transport. Imports the hub and `sessions`; only what
opens connections imports it.
"""
