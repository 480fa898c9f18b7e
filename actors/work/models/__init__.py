"""Access to language models: one gateway, a codec for each provider, and local engines.

This package may import trio, httpx and the kernel, but nothing about graphs or agents. No layer above it depends on a
provider. Start with `gateway`. Then read `catalog` (resolution of model ids), `codec` and one provider, `client` (one
request and its errors), `engines` (models on this machine).
"""
