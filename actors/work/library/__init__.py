"""What comes with Callboard for its users: agents, roles and macros like their own, and helpers for tool files.

Nothing in here is imported by the rest of the house; it is data that happens to hold programs. An agent, a role
or a macro of the same name in the configuration directory comes first, so copying it there is how one changes it.
"""

from pathlib import Path

AGENTS = Path(__file__).parent / "agents"
"""A directory per built-in agent."""

PROMPT_UTILS = Path(__file__).parent / "functions" / "prompt-utils.sh"
"""What `LLM_PROMPT_UTILS_FILE` names: helpers for tool files in bash."""

TOOLS = Path(__file__).parent / "functions" / "tools"
"""A file per tool that needs a key or an account; `tools.registry` finds them by name."""

SENDING = frozenset({"send_mail", "send_twilio", "create_jira_issue", "comment_jira_issue"})
"""Those of them that send something to others, for which a person is asked."""

ROLES = Path(__file__).parent / "roles"
"""A file per built-in role."""

SKILLS = Path(__file__).parent / "skills"
"""A directory per built-in skill."""

MACROS = Path(__file__).parent / "macros"
"""A file per built-in macro."""
