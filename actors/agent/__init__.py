"""LLM-loop agents (`config.yaml`). This version runs the plain ones: instructions, one request, one answer."""
