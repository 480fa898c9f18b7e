"""OpenTelemetry: traces and metrics of runs, by the conventions for generative AI (extra `otel`).

All of it is a projection of the event stream: nothing in a run knows that it is traced. A listener on the bus keeps,
for each run under way, the spans that are open, by the actor they are about; an event opens one or ends one, with its
own time. The parent of a span is the nearest open one on the way up the tree of actors, so it needs no context that
would have to be carried through tasks.

    run.started, graph.started      invoke_agent NAME or invoke_workflow NAME
    agent.started                   invoke_agent NAME
    node.entered                    node ID
    llm.request                     chat MODEL; its retries and fallbacks are events on it
    tool.call.started               execute_tool NAME
    knowledge.retrieved             retrieval NAME
    llm.embedding, llm.rerank       embeddings MODEL, rerank MODEL

Nothing stays open: the end of an actor ends what is open for it, the end of a run the rest, and then the run is
forgotten. What is measured is recorded where a span ends, whether or not that span is sampled.

Words of people and models (prompts, answers, arguments, results, error messages) are left out unless
OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT says otherwise, and then secrets are taken out of them.

Who turns nothing on pays nothing: no listener is there, and opentelemetry is not imported. Read `spans` first;
`conventions` has names and histograms, `export` is for the command line, `attach` is the Python API. The room knows
`protocol`, the root of `runs`, `views` and the redactor; only `cli` and `callboard` itself know the room.
"""
