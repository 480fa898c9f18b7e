"""How language models are reached: one gateway, a codec for each provider, and a local engine.

May know trio, httpx and the kernel; knows nothing of graphs or agents, and no room above it knows a provider.
Start with `gateway`; then `catalog` (which model an id means), `codec` and one provider, `client` (one request and
what can go wrong), `engines` (models on this machine).
"""
