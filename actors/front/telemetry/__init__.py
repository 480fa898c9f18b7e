"""OpenTelemetry traces and metrics of runs, by the conventions for generative AI (extra `otel`).

Telemetry is a projection of the event stream: the code of a run does not know about it. One listener on the
bus keeps the open spans of all runs, by the actor of each. An event opens or ends a span, at the event's own time.
The parent of a span is the nearest open one above it in the tree of actors, so no context has to be passed between
tasks. While a tool or model is called, the span of the call is OpenTelemetry's current one, and instrumented code
inside becomes its child.

    run.started, graph.started      invoke_agent NAME or invoke_workflow NAME
    agent.started                   invoke_agent NAME
    node.entered                    node ID
    llm.request                     chat MODEL; its retries and fallbacks are events on it
    tool.call.started               execute_tool NAME
    knowledge.retrieved             retrieval NAME
    llm.embedding, llm.rerank       embeddings MODEL, rerank MODEL

No span stays open: the end of an actor ends that actor's spans, and the end of a run ends the rest and drops the run.
Measurements are recorded when a span ends, whether or not the span is sampled.

Texts of people and models (prompts, answers, arguments, results, error messages) are omitted unless
OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT requests them; even then secrets are removed.

With telemetry off there is no listener, and opentelemetry is not imported. Read `spans` first; `export` serves the
command line, `attach` is the Python API. `event_log` writes events to `logging` and needs no OpenTelemetry. The
package imports `protocol`, `supervisors` (bus, installation), `runs` (root, trace context), `views` and the redactor;
only `cli` and `callboard` itself import it.
"""
