"""Access to language models: one gateway, a codec for each provider, and local engines.

May import `protocol`, `supervisors`, `actors/io` and `work/spending`, but nothing about graphs or agents. No layer
above depends on a provider.

Five names to know:

    Gateway        finds the model, sends the request with its attempts, counts and charges (`gateway`)
    ModelCatalog   resolves a model id such as `openai:gpt-5` to a `ModelTarget` (`catalog`)
    Codec          translates one provider's format, without any I/O (`codec`; then `openai`, `anthropic`, ...)
    Endpoint       HTTP client of one base URL; an error type for each failure (`client`, pooled by `gateway`)
    Gates          limiters that admit requests at the provider's rate (`limiter`)

Start with `Gateway.chat`, then follow `call` and `client`. Packages: `aws` (Bedrock), `vertex` (Vertex AI), `prices`,
`reasoning` (effort, and reasoning items in conversations).
"""
