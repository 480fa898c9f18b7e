"""What HTTP requests are answered with: an application of starlette's, whoever serves it.

`every` lists the routes, each with what it takes and gives; `app` makes the application of that list and `openapi`
its description. `routes/` are the handlers, `shapes/` what goes over the wire and how events are told there.
"""
