"""A config directory as Loki v0.4.0 leaves it behind, of our own writing: one of everything, in its places.

config.yaml  .env  messages.md  models-override.yaml  vault.yml
roles/*.md  macros/*.yaml  sessions/*.yaml  sessions/_/*.yaml  rags/*.yaml
functions/{tools,utils,scripts,bin}/  functions/mcp.json
agents/.shared/  agents/NAME/{config.yaml | graph.yaml, tools.{sh,py,ts}, sessions/, bin/, rag.yaml}
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import sys
from pathlib import Path

from support.mcp_entries import scripted

SETTINGS = """
model: fake:chat
temperature: null
top_p: null
stream: true
save: true
keybindings: emacs
editor: null
wrap: no
wrap_code: false
repl_prelude: null
cmd_prelude: null
agent_session: null
highlight: true
light_theme: false
user_agent: null
save_shell_history: true
sync_models_url: https://models.invalid/models.yaml
left_prompt: '{color.green}{?session {session}}{role}{color.reset}> '
right_prompt: '{?consume_tokens {consume_tokens}({consume_percent}%)}'
vault_password_file: null
function_calling: true
mapping_tools: {fs: 'fs_cat,fs_ls'}
enabled_tools: null
visible_tools: [fs_cat.sh, fs_ls.sh, stamp.py, shout.ts, execute_command.sh]
mcp_server_support: true
mapping_mcp_servers: {shelf: books}
enabled_mcp_servers: null
auto_continue: false
max_auto_continues: 10
inject_todo_instructions: true
continuation_prompt: null
save_session: null
compression_threshold: 4000
summarization_prompt: Say it in 200 words.
summary_context_prompt: 'What was said so far: '
rag_embedding_model: fake:embed
rag_reranker_model: null
rag_top_k: 5
rag_chunk_size: null
rag_chunk_overlap: null
rag_template: "__CONTEXT__ __SOURCES__ __INPUT__"
document_loaders: {pdf: 'pdftotext $1 -', git: 'sh -c "yek $1 --json"'}
clients:
  - type: openai
    api_base: https://api.openai.com/v1
    api_key: '{{OPENAI_API_KEY}}'
    organization_id: org-1
  - type: openai-compatible
    name: fake
    api_base: __BASE__
    api_key: sk-test
    models:
      - {name: chat, max_input_tokens: 100000, supports_vision: true, supports_function_calling: true}
      - {name: embed, type: embedding, default_chunk_size: 1500, max_batch_size: 100}
      - {name: order, type: reranker}
    patch: {chat_completions: {'.*': {body: {seed: 7}}}}
    extra: {proxy: null, connect_timeout: 10}
  - type: claude
    api_key: '{{ANTHROPIC_API_KEY}}'
    auth: null
  - type: vertexai
    project_id: xxx
    location: xxx
  - type: bedrock
    access_key_id: '{{AWS_ACCESS_KEY_ID}}'
    secret_access_key: '{{AWS_SECRET_ACCESS_KEY}}'
    region: xxx
"""

BASH_TOOL = """#!/usr/bin/env bash
set -e
# @describe Lists a directory.
# @option --path! The directory.
# @env LLM_OUTPUT=/dev/stdout The output path
main() { ls -1 "$argc_path" >> "$LLM_OUTPUT"; }
eval "$(argc --argc-eval "$0" "$@")"
"""

FILES = {
    ".env": "SHOP=corner\n",
    "messages.md": "# 2026-05-01\n",
    "models-override.yaml": "version: 0.4.0\nlist: []\n",
    "vault.yml": "what only Loki can read\n",
    "roles/translator.md": "---\nmodel: fake:chat\ntemperature: 0.1\n---\nTranslate what you are told.\n",
    "roles/wrapper.md": "Say nothing but this: __INPUT__\n",
    "roles/pairs.md": "Opposites.\n### INPUT:\nhot\n### OUTPUT:\ncold\n",
    "roles/listing.md": "---\nenabled_tools: fs\nenabled_mcp_servers: shelf\n---\nYou list.\n",
    "macros/greet.yaml": "variables:\n  - name: who\n    rest: true\n    default: Ada\nsteps:\n"
    "  - .role translator\n  - hello {{who}}\n  - .exit role\n",
    "functions/tools/fs_ls.sh": BASH_TOOL,
    "functions/tools/fs_cat.sh": BASH_TOOL.replace("Lists a directory", "Reads a file").replace("ls -1", "cat"),
    "functions/tools/stamp.py": 'def run(text: str, times: int = 1):\n    """Stamps.\n\n    Args:\n        text: what\n'
    '        times: how often\n    """\n    return text * times\n',
    "functions/tools/shout.ts": "/** Shouts.\n * @param text what */\n"
    "export function run(text: string): string { return text.toUpperCase() }\n",
    "functions/utils/prompt-utils.sh": "true\n",
    "functions/scripts/run-tool.sh": "exit 1\n",
    "functions/bin/fs_ls": "exit 1\n",
    "agents/.shared/utils.sh": 'greeting() { echo "from the shared file"; }\n',
    "agents/keeper/config.yaml": "name: keeper\nversion: 0.1.0\ndescription: Keeps things.\nmodel: null\n"
    "instructions: |\n  You keep things for {{owner}}.\n  {{__tools__}}\n"
    "variables: [{name: owner, description: Whose things.}]\n"
    "conversation_starters: [What do you keep?]\nglobal_tools: [fs_ls.sh, fs_cat.sh]\nmcp_servers: [shelf]\n"
    "documents: []\nagent_session: null\ndynamic_instructions: false\n",
    "agents/keeper/tools.sh": '#!/usr/bin/env bash\nsource "$LLM_ROOT_DIR/agents/.shared/utils.sh"\n'
    '# @cmd What is kept.\n# @option --shelf! Which.\nkept() { echo "$(greeting): $argc_shelf of $LLM_AGENT_VAR_OWNER" '
    '>> "$LLM_OUTPUT"; }\neval "$(argc --argc-eval "$0" "$@")"\n',
    "agents/keeper/bin/keeper": "exit 1\n",
    "agents/keeper/sessions/shelves.yaml": "model: fake:chat\nagent_variables:\n  owner: Ada\nmessages:\n"
    "- role: system\n  content: You keep things for Ada.\n- role: user\n  content: first\n"
    "- role: assistant\n  content: second\n",
    "agents/steps/graph.yaml": "name: steps\nstart: say\nnodes:\n"
    "  say: {type: llm, prompt: 'Step: {{initial_prompt}}', state_updates: {said: '{{output}}'}, next: done}\n"
    "  done: {type: end, output: '{{said}}'}\n",
    "sessions/trip.yaml": "model: fake:chat\ntemperature: 0.3\nsave_session: true\nrole_name: translator\nmessages:\n"
    "- role: system\n  content: Translate what you are told.\n- role: user\n  content: Where is the station?\n"
    "- role: assistant\n  content: Dove si trova la stazione?\n",
    "sessions/_/20260501T101112-old-things.yaml": "model: fake:chat\nmessages:\n- role: user\n  content: old\n"
    "- role: assistant\n  content: things\n",
}

KINDS = {"roles": 4, "macros": 1, "agents": 2, "sessions": 2, "rags": 1}
"""What lists have of it."""


def lay_out(directory: Path, api_base: str) -> Path:
    """Writes all of it; `api_base` is that of the client `fake`."""
    for name, text in {**FILES, "config.yaml": SETTINGS.replace("__BASE__", api_base).lstrip()}.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (directory / "functions" / "mcp.json").write_text(
        json.dumps({"mcpServers": {"books": {"type": "stdio", **scripted("--legacy")}, "far": FAR}}, indent=1)
    )
    rags = directory / "rags"
    rags.mkdir()
    note = directory.parent / "note.md"
    note.write_text("A plum is blue.")
    (rags / "fruit.yaml").write_text(_base(note))
    return directory


FAR = {"type": "http", "url": "https://mcp.invalid/mcp", "headers": {"Authorization": "Bearer {{FAR_TOKEN}}"}}


def _base(note: Path) -> str:
    """A knowledge base of one document as Loki keeps it, vector and all."""
    vector = base64.b64encode(struct.pack("<4f", 1.0, 10.0, 0.0, 0.0)).decode()
    text = note.read_text()
    return json.dumps(
        {
            "embedding_model": "fake:embed",
            "chunk_size": 1500,
            "chunk_overlap": 75,
            "reranker_model": None,
            "top_k": 5,
            "batch_size": 100,
            "next_file_id": 1,
            "document_paths": [str(note)],
            "files": {
                "0": {
                    "hash": hashlib.sha256(text.encode()).hexdigest(),
                    "path": str(note),
                    "documents": [{"page_content": text, "metadata": {}}],
                }
            },
            "vectors": {"0-0": vector},
        },
        indent=1,
    )


if __name__ == "__main__":  # to look at one: python -m qa.loki_directory DIR
    lay_out(Path(sys.argv[1]), "http://127.0.0.1:1/v1")
