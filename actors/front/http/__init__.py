"""The HTTP API: an application of starlette's, for any ASGI server.

`every` lists the routes, each with what it takes and gives; `app` makes the application of that list and `openapi`
its description. `routes/` are the handlers, `shapes/` the bodies and events on the wire.
"""
