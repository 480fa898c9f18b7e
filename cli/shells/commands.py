"""`callboard completion` and `callboard shell-init`: scripts for shells, on stdout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

_SCRIPTS = Path(__file__).parent / "scripts"
_ENDINGS = {"bash": "bash", "zsh": "zsh", "fish": "fish", "elvish": "elv", "nushell": "nu", "powershell": "ps1"}
_ALIASES = {
    "bash": """
alias loki='callboard loki'
complete -o nosort -F _callboard loki 2>/dev/null || complete -F _callboard loki
""",
    "zsh": """
alias loki='callboard loki'
""",
    "fish": """
function loki
    callboard loki $argv
end
complete --command loki --no-files --arguments '(__callboard_complete loki)'
""",
    "elvish": """
edit:add-var loki~ {|@words| e:callboard loki $@words }
set edit:completion:arg-completer[loki] = $callboard-complete~
""",
    "nushell": """
alias loki = callboard loki
""",
    "powershell": """
function loki { callboard loki @args }
Register-ArgumentCompleter -Native -CommandName loki -ScriptBlock $CallboardComplete
""",
}

_shell = click.argument("shell", metavar="SHELL", type=click.Choice(tuple(_ENDINGS)))


@click.command("completion", short_help="Print the completion script of a shell.")
@_shell
def completion(shell: str) -> str:
    """Print the completion script of SHELL: bash, zsh, fish, elvish, nushell or powershell. It completes commands,
    flags, and the names of your agents, roles, sessions, macros, models, knowledge bases and runs.

    \b
    eval "$(callboard completion bash)"              ~/.bashrc
    eval "$(callboard completion zsh)"               ~/.zshrc
    callboard completion fish | source               ~/.config/fish/config.fish
    eval (callboard completion elvish | slurp)       ~/.config/elvish/rc.elv
    callboard completion nushell | save -f ~/.config/nushell/callboard.nu; `source callboard.nu` in config.nu
    callboard completion powershell | Out-String | Invoke-Expression         $PROFILE
    """
    return _script("complete", shell)


@click.command("shell-init", short_help="Print the start script of a shell: completion, and Alt-e.")
@_shell
@click.option("--loki", is_flag=True, help="Also define the alias loki for `callboard loki`, with completion.")
def shell_init(shell: str, loki: bool) -> str:
    """Print the start script of SHELL: its completion, and the key Alt-e, which replaces the typed line with the
    command that `callboard -e` makes of it. Nothing is executed; Ctrl-C keeps the line. SHELL is bash, zsh, fish,
    elvish, nushell or powershell.

    \b
    eval "$(callboard shell-init bash)"              ~/.bashrc
    eval "$(callboard shell-init zsh)"               ~/.zshrc, after the lines that set the key map
    callboard shell-init fish | source               ~/.config/fish/config.fish
    """
    return _script("complete", shell) + _script("alt-e", shell) + (_ALIASES[shell] if loki else "")


def by_variable(shell: str, arguments: Sequence[str]) -> Sequence[str]:
    """Return the command line that prints the completion of the shell in `COMPLETE`; unchanged for an unknown shell."""
    name = shell.rpartition("/")[2].lower()
    if name not in _ENDINGS:
        return arguments
    return ("shell-init", name, "--loki") if arguments else ("completion", name)


def _script(what: str, shell: str) -> str:
    return (_SCRIPTS / f"{what}.{_ENDINGS[shell]}").read_text(encoding="utf-8")
