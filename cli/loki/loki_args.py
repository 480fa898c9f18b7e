"""Flags of a Loki command line, converted to a run request, run flags and chat options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from ...protocol.requests import RunRequest
    from ..actions.run import RunFlags

Ended: TypeAlias = int | str
"""Exit code, or text to print."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """Flags as click parsed them, by the names in `flags`, and the words of the text."""

    model: str | None = None
    prompt: str | None = None
    role: str | None = None
    session: str | None = None
    empty_session: bool = False
    save_session: bool = False
    agent: str | None = None
    variables: tuple[tuple[str, str], ...] = ()
    rag: str | None = None
    rebuild_rag: bool = False
    macro: str | None = None
    files: tuple[str, ...] = ()
    execute: bool = False
    code: bool = False
    no_stream: bool = False
    dry_run: bool = False
    info: bool = False
    list_models: bool = False
    list_roles: bool = False
    list_sessions: bool = False
    list_agents: bool = False
    list_rags: bool = False
    list_macros: bool = False
    tail_logs: bool = False
    disable_log_colors: bool = False
    sync_models: bool = False
    build_tools: bool = False
    authenticate: str | None = None
    install: str | None = None
    install_from: str | None = None
    filters: tuple[str, ...] = ()
    install_force: bool = False
    update: str | None = None
    force: bool = False
    completions: str | None = None
    add_secret: str | None = None
    get_secret: str | None = None
    update_secret: str | None = None
    delete_secret: str | None = None
    list_secrets: bool = False
    config_dir: str | None = None
    no_tools: bool = False
    continues: bool = False
    resume: bool = False
    text: tuple[str, ...] = ()

    @property
    def in_directory(self) -> tuple[str, ...]:
        """Flag for Callboard's commands that names the configuration directory."""
        return () if self.config_dir is None else ("--config-dir", self.config_dir)

    def request(self, text: str) -> RunRequest:
        """Return the run request of a prompt, with the agent if one is named."""
        from ...protocol.requests import RunRequest

        return RunRequest(
            target=self.agent or "",
            prompt=text,
            typed=None if text == " ".join(self.text) else " ".join(self.text),
            model=self.model,
            variables=dict(self.variables),
            knowledge=(self.rag,) if self.rag else (),
            rebuild_knowledge=self.rebuild_rag and not self.dry_run,
            files=self.files,
        )

    def run_flags(self, *, role: str | None = None, quiet: bool = False) -> RunFlags:
        """Return the flags of the run; `role` applies if the line names none."""
        from ..actions.run import AdHoc, RunFlags

        adhoc = AdHoc(instructions="", tools=(), role=role or self.role, prompt=self.prompt)
        return RunFlags(
            adhoc=None if self.agent else adhoc,
            reads_stdin=False,
            no_input=False,
            output="text",
            dry_run=self.dry_run,
            no_stream=self.no_stream,
            session=self.session,
            save_session=True if self.save_session else None,
            saves=True,
            quiet=quiet,
            verbose=False,
            config_dir=self.config_dir,
        )

    def opening(self) -> dict[str, Any]:
        """Return the parameters of `_chat/open`."""
        said = {
            "agent": self.agent,
            "role": self.role,
            "role_prompt": self.prompt,
            "session": "" if self.session == "temp" else self.session,
            "rag": self.rag,
            "model": self.model,
            "variables": dict(self.variables),
            "empty_session": self.empty_session,
            "save_session": True if self.save_session else None,
            "default_agent": not self.no_tools,
            "store": True,
            "reopen": "last" if self.continues else "choose" if self.resume else None,
        }
        return {name: value for name, value in said.items() if value not in (None, False, {})}
