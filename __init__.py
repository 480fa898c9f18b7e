"""Callboard runs many LLM agents, written in YAML, in one supervised Python process."""
