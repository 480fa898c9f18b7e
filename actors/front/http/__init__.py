"""HTTP API: a starlette application, for any ASGI server.

Start with `app.make_app`, which builds the application from the list in `routes`: each route is a handler with its
input and output types. `app.guarded` puts `access` before the application. A handler gets a `call.HttpCall`; `call`
also maps errors to replies. `shapes/` are bodies and events that several routes share, `streams` the replies that take
as long as a run. The package imports `control`, `access` and `metrics`.
"""
