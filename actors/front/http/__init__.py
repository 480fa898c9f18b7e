"""HTTP API: a starlette application, for any ASGI server.

Start with `app.make_app`, which builds the application from the list in `routes`: each route is a handler with its
input and output types. A handler gets a `call.HttpCall`. `openapi` describes the routes, `shapes/` are the bodies and
events on the wire, `streams` the replies that take as long as a run. `middleware` puts `access` before the application,
and `errors` maps errors to replies. The package imports `control`, `access` and `metrics`.
"""
