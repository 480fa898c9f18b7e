"""The HTTP API: an application of starlette's, for any ASGI server.

`routes` lists the routes, each a handler with what it takes and gives; `app` makes the application of that list and
`openapi` its description. `shapes/` are the bodies and events on the wire.
"""
