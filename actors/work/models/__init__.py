"""How language models are reached: one gateway, four providers, an HTTP transport, and a local engine.

May know trio, httpx and the kernel; knows nothing of graphs or agents, and no room above it knows a provider.
Start with `gateway`; then `catalog` (which model an id means), `codec` and one provider, `client` (one request and
what can go wrong), `transport` (HTTP for a thousand agents), `engines` (models on this machine).
"""
