"""What comes with Callboard for its users: agents as directories, like their own, and helpers for their tool files.

Nothing in here is imported by the rest of the house; it is data that happens to hold programs. An agent of the same
name in the configuration directory comes first, so copying a directory there is how one changes a built-in agent.
"""

from pathlib import Path

AGENTS = Path(__file__).parent / "agents"
"""A directory per built-in agent."""

PROMPT_UTILS = Path(__file__).parent / "functions" / "prompt-utils.sh"
"""What `LLM_PROMPT_UTILS_FILE` names: helpers for tool files in bash."""
