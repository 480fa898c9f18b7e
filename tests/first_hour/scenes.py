"""What each page takes for granted, and what its commands are expected to show.

Every command of every page is run as it stands, but for the rows here that say why it can't be. A row that fits no
command is an error, so that the tables follow the pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from support.waiting import PATIENCE


@dataclass(frozen=True, kw_only=True)
class Row:
    """How a command is run.

    Attributes:
        skip: why it is not.
        serves: it goes on in a terminal of its own until the page ends; the text that shows that it is ready.
        interactive: it goes on until these keys are pressed, once it has shown `shows`.
        shows: what it shows, as a regular expression.
        answers: what it asks, with the keys that answer.
        code: its exit code.
        within: seconds it may take.
    """

    skip: str = ""
    serves: str = ""
    interactive: str = ""
    shows: str = ""
    answers: tuple[tuple[str, str], ...] = ()
    code: int = 0
    within: float = PATIENCE


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What a page takes for granted.

    Attributes:
        files: below the working directory; of a name that begins with `~/`, below HOME.
        fences: files whose content the page prints, as the number of the fenced block.
        before: commands that set it up.
        rows: by the beginning of a command.
        learns: a name that the page makes up for what only the run can know, and where it is shown.
        then: by the beginning of a command, what stands for the page in the browser after it.
        needs_index: something of it comes from the package index.
        needs_postgres: CALLBOARD_CLUSTER names an empty database.
        environ: what makes its commands quick and changes nothing that they show.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    fences: Mapping[str, int] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    rows: Mapping[str, Row] = field(default_factory=dict)
    learns: Mapping[str, str] = field(default_factory=dict)
    then: Mapping[str, str] = field(default_factory=dict)
    needs_index: bool = False
    needs_postgres: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)


UNRELEASED = "names the package on the index; README.md's `pip install -e '.[…]'` is run"
NEEDS_WEIGHTS = "README.md's are pulled"
WORKING = Row(skip="for those who work on Callboard: CONTRIBUTING.md")

DOCS = {"docs/warranty.md": "# Warranty\n\nThe warranty is two years long.\n"}
FLOW = """graph:
  id: bicycles
  start: [writer]
  end: [writer]
  nodes:
    - id: writer
      type: agent
      config: {provider: openai, name: gpt-4o-mini, role: "Write in a ${TONE} tone."}
vars: {TONE: plain}
"""
START = (
    'TOKEN=$(sed \'s/.*"token": *"\\([^"]*\\)".*/\\1/\' ~/.local/state/callboard/servers/3400.json);'
    ' curl -sS -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json"'
    """ -d '{"target": "./hello/graph.yaml", "prompt": "tea"}' http://127.0.0.1:3400/v1/runs;"""
    ' until curl -sS -H "Authorization: Bearer $TOKEN" http://127.0.0.1:3400/v1/runs | grep -q waiting;'
    " do sleep 0.1; done"
)
"""What *New run*, the target and *Start* do on the page of `callboard serve`."""

TRANSLATE = """variables: [{name: language}, {name: text, rest: true, default: Good morning}]
steps: [".role translate#{{language}}", "{{text}}"]
"""
REVIEW = """variables: [{name: change, rest: true, default: nothing}]
steps: ["Review this change: {{change}}"]
"""
RESEARCHER = "name: researcher\ninstructions: You find sources.\n"

SCENES = {
    "README.md": Scene(
        # pip compiles nothing beforehand (so it is switched off there), and the local toy says little.
        environ={"PIP_NO_COMPILE": "0", "CALLBOARD_MAX_OUTPUT_TOKENS": "100"},
        rows={
            "make demo": Row(
                answers=((r"callboard resume run-\w+(?s:.)*fs_edit\?(?s:.)*\b1\W+(?i:yes)", "1\r"),),
                shows=r"all 4 passed(?s:.)*Try next:",
                within=600,
            ),
            "source ": Row(),
            "callboard --help": Row(shows=r"Talk(?s:.)*Compatibility"),
            "callboard run haiku.yaml": Row(shows=r"\w+ \w+"),
            "callboard validate": Row(shows="no problems"),
            "pip install": Row(within=600),
            "callboard doctor": Row(shows="local model"),
            "callboard serve": Row(serves=r"the page: http://127\.0\.0\.1:3400/#token="),
        },
    ),
    "docs/agents.md": Scene(
        fences={"clerk/config.yaml": 0},
        rows={
            "callboard run ./clerk": Row(shows="piers"),
            "callboard run clerk": Row(shows="piers"),
            "callboard agents show": Row(shows="count_words"),
            "callboard ask": Row(shows="piers"),
            "callboard run deep-research": Row(skip="searches the web; tests/actors/work/library plays it"),
        },
    ),
    "docs/benchmarks.md": Scene(rows={"make ": WORKING}),
    "docs/chat.md": Scene(
        files={"~/.config/callboard/config.yaml": "model: openai:gpt-5-mini\n"},
        rows={
            "callboard chat -r": Row(skip="the role is an example"),
            "callboard chat --rag": Row(skip="the knowledge base is an example"),
            "callboard chat --url": Row(
                skip="the address is an example; tests/cli/chat/test_remote_terminal.py plays it"
            ),
            "callboard chat --attach": Row(skip="the id is an example; as above"),
            "callboard chat --ui": Row(interactive="\x04", shows=r"the page: http://127\.0\.0\.1:\d+/#token="),
            "callboard --continue": Row(skip="there is no earlier chat; tests/cli/chat plays it"),
            "callboard --resume": Row(skip="as above"),
            "callboard": Row(interactive="\x04", shows="Ctrl-D leaves"),
        },
    ),
    "docs/cli.md": Scene(
        files={"notes.md": "Bridges need piers.\n", **DOCS},
        before=(
            "git init -q . && git -c user.name=A -c user.email=a@b commit -q --allow-empty -m first",
            "callboard agents new my-agent",
        ),
        rows={
            "callboard ask -f notes.md": Row(shows="piers"),
            "callboard ask -f %%": Row(shows="piers"),
            "callboard tools call": Row(shows="3"),
            "callboard mcp call": Row(skip="docs/mcp.md's is run"),
            "callboard kb ": Row(skip="docs/knowledge.md's are run"),
            "callboard ask --kb": Row(skip="docs/knowledge.md's is run"),
            "callboard serve": Row(skip="docs/server.md's are run"),
            "callboard worker": Row(skip="docs/cluster.md's are run"),
            "callboard cluster": Row(skip="docs/cluster.md's is run"),
            "callboard keys hash": Row(answers=((r"[Kk]ey", "cb_a-key-of-some-length-0123456789\n"),), shows="argon2"),
            "callboard show 7f3a": Row(skip="the id is an example; those of the last run are shown"),
            "callboard -e find": Row(interactive="q", shows=r"execute \| revise"),
            'eval "$(callboard completion bash': Row(),
            'eval "$(callboard completion zsh': Row(skip="for zsh"),
            "callboard completion fish": Row(skip="for fish"),
            "eval (callboard completion elvish": Row(skip="for elvish"),
            "callboard completion powershell": Row(skip="for PowerShell"),
        },
    ),
    "docs/control.md": Scene(
        then={"callboard serve": START},
        learns={"7f3a": r"run-([0-9a-z]{4})[0-9a-z]{4}"},
        rows={
            "pip install": Row(skip="README.md's is run"),
            "callboard models": Row(skip=NEEDS_WEIGHTS),
            "callboard serve": Row(serves=r"the page: (?s:.)*from other terminals: callboard ps"),
            "callboard ps": Row(shows=r"waiting"),
            "callboard attach": Row(interactive="\x03", shows="Send"),
            "callboard answer": Row(shows="7f3a"),
            "callboard top": Row(interactive="q", shows="review"),
            "callboard stop": Row(shows="had ended before"),
            "callboard logs": Row(shows="done"),
            "curl": Row(shows="run-"),
        },
    ),
    "docs/durable.md": Scene(
        rows={"callboard fork 7f3a": Row(skip="the id is an example; tests/cli/test_fork.py plays it")}
    ),
    "docs/graphs.md": Scene(
        fences={"greeter/graph.yaml": 0},
        rows={
            "callboard run": Row(answers=((r"Who are you\?", "Ada\r"),), shows="piers"),
            "callboard validate": Row(shows="no problems"),
            "callboard graph": Row(shows="greet"),
        },
    ),
    "docs/knowledge.md": Scene(
        needs_index=True,
        files=DOCS,
        rows={
            "pip install": Row(skip=UNRELEASED),
            "callboard kb search": Row(shows=r"docs/warranty\.md"),
            "callboard ask": Row(shows="piers"),
        },
    ),
    "docs/macros.md": Scene(
        before=("git init -q .",),
        files={
            "~/.config/callboard/roles/translate.md": "You translate into __ARG1__.\n",
            "~/.config/callboard/macros/translate.yaml": TRANSLATE,
            "~/.config/callboard/macros/review.yaml": REVIEW,
        },
        rows={"callboard macro": Row(shows="piers"), "git diff": Row(shows="piers")},
    ),
    "docs/mcp.md": Scene(
        needs_index=True,
        before=("callboard agents new clerk",),
        rows={
            "callboard mcp list": Row(shows="time"),
            "callboard mcp test": Row(shows="get_current_time", within=600),
            "callboard mcp call": Row(shows="Asia/Tokyo", answers=((r"(?s)allow|permission|may", "\x1b[A\r"),)),
            "callboard ask": Row(shows="piers"),
            "callboard mcp serve clerk --http": Row(serves=r"http://127\.0\.0\.1:8808/mcp"),
            "callboard mcp serve clerk": Row(interactive="\x04", shows=""),
            "callboard auth": Row(skip="wants a server that wants a sign-in, a browser, and a person in front of it"),
        },
    ),
    "docs/models.md": Scene(rows={"pip install": Row(skip=UNRELEASED), "callboard models": Row(skip=NEEDS_WEIGHTS)}),
    "docs/providers.md": Scene(
        rows={
            "pip install": Row(skip=UNRELEASED),
            "callboard models check": Row(shows=r"ok +openai:gpt-4o-mini"),
            "callboard models pull": Row(skip=NEEDS_WEIGHTS),
            "callboard auth login": Row(skip="wants a browser, and a person in front of it"),
            "callboard ask": Row(skip="of a client that has to be signed in for"),
        },
    ),
    "docs/runbook.md": Scene(
        rows={
            "callboard ps": Row(skip="of a server that systemd runs"),
            "curl": Row(skip="of a server that systemd runs"),
            "callboard keys": Row(shows="subject"),
            "callboard mcp status": Row(skip="of a server that systemd runs"),
            "callboard sessions": Row(),
        },
    ),
    "docs/cluster.md": Scene(
        rows={
            "pip install": Row(skip="the environment of the tests has them"),
            "callboard worker --name one": Row(serves=r"serving at http://127"),
            "callboard worker --name two": Row(serves=r"serving at http://127"),
            "callboard worker --name three": Row(serves=r"serving at http://127"),
            "callboard serve": Row(serves=r"http://127\.0\.0\.1:3400"),
            "callboard run greeter Ada": Row(shows=r"Hello, Ada!"),
            "callboard ps -a": Row(shows=r"done +greeter"),
        },
        fences={"~/.config/callboard/agents/greeter/graph.yaml": 0},
        needs_postgres=True,
    ),
    "docs/server.md": Scene(
        rows={
            "callboard serve --port 0 --ui": Row(serves=r"/#token=cb_"),
            "callboard serve --ui": Row(skip="the port is taken by the first one"),
            "callboard serve": Row(serves=r"http://127\.0\.0\.1:3400"),
            "callboard run --ui": Row(skip="works on a repository; README.md's is run"),
            "TOKEN=": Row(),
            'curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:3400/v1/agents': Row(shows="coder"),
            "curl": Row(shows="piers"),
        },
    ),
    "docs/roles.md": Scene(
        files={"~/.config/callboard/roles/translate.md": "You translate into __ARG1__.\n"},
        rows={"callboard ask": Row(shows="piers")},
    ),
    "docs/sessions.md": Scene(
        files={"~/.config/callboard/agents/researcher/config.yaml": RESEARCHER},
        rows={
            "callboard sessions": Row(shows="bridges(?s:.)*thesis|thesis(?s:.)*bridges"),
            "callboard": Row(shows="piers"),
        },
    ),
    "docs/sharing.md": Scene(
        files={
            "team/roles/kind.md": "You are kind.\n",
            "team/agents/clerk/config.yaml": "name: clerk\ninstructions: Sort letters.\n",
        },
        rows={
            "callboard install https://": Row(skip="wants a repository of the reader's"),
            "callboard install ./team": Row(shows="installed team", answers=((r"Install team\?", "y\r"),)),
            "callboard install --builtin": Row(shows="installed builtin", answers=((r"Install builtin\?", "y\r"),)),
            "callboard install list": Row(shows="team"),
            "callboard install update": Row(shows="team is up to date"),
            "callboard install remove team": Row(shows="removed team", answers=((r"Remove team\?", "y\r"),)),
        },
    ),
    "docs/sandbox.md": Scene(files={"~/.config/callboard/agents/coder/config.yaml": "name: coder\n"}),
    "docs/skills.md": Scene(
        rows={"callboard skills validate": Row(shows="valid"), "callboard trust": Row(shows="is trusted")}
    ),
    "docs/workspace.md": Scene(
        files={"AGENTS.md": "Use tabs.\n"},
        rows={"callboard trust --show": Row(shows="no decision yet"), "callboard trust": Row(shows="is trusted")},
    ),
    "docs/telemetry.md": Scene(
        before=("callboard agents new my-agent",),
        rows={"pip install": Row(skip=UNRELEASED), "callboard run": Row(shows="piers")},
    ),
    "docs/testing.md": Scene(
        rows={
            "callboard run ./agents/bridges": Row(shows="piers"),
            "callboard test --update": Row(shows="1 case passed"),
            "callboard test": Row(shows="1 case passed"),
            "pytest --cassettes=once": Row(shows="1 passed"),
            "pytest": Row(shows="1 passed"),
        }
    ),
    "docs/tools.md": Scene(
        before=("callboard agents new clerk",),
        rows={
            "callboard tools show": Row(shows="pattern"),
            "callboard tools list --agent clerk": Row(shows="count_words"),
            "callboard tools call": Row(shows=r"\w"),
            "callboard tools": Row(shows="fs_grep"),
        },
    ),
    "docs/workflows.md": Scene(
        files={"flow.yaml": FLOW, "notes.pdf": "%PDF-1.4\n", "tasks.csv": "id,task\n1,wheels\n2,chains\n"},
        rows={
            "callboard run": Row(shows="piers"),
            "callboard graph": Row(shows="writer"),
            "callboard batch": Row(shows="2"),
        },
    ),
}
