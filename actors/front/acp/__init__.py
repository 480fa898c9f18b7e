"""The Agent Client Protocol on a connection: editors talk with agents whose conversations are kept as sessions.

`agent` answers the methods, `session` is one with the client's settings, directories and servers, `prompting` plays one
prompt as a run of the hub, `updates` maps the run's events and earlier messages to ACP's. Imports the hub and
`sessions`; only what opens connections imports it.
"""
