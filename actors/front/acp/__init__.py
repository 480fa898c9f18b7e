"""The Agent Client Protocol on a connection: editors talk with agents whose conversations are kept as sessions.

`side` answers the methods, `prompting` plays one prompt as a run of the hub, `updates` says the run's events in ACP's
words, `replay` what was said before, `asking` puts questions to the client, `opened` is a session as the client has
set it, `surroundings` what it has brought, `stdio` carries it all. Knows the hub and `sessions`; nobody here knows it
but who opens connections.
"""
