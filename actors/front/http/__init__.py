"""HTTP API: a starlette application, for any ASGI server.

`routes` lists the routes, each a handler with its input and output types; `app` builds the application from the list
and `openapi` its description. `shapes/` are the bodies and events on the wire.
"""
