"""The structs of requests and replies, and the mappings of a run's events to other protocols. No I/O."""
