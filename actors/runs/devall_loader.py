"""Loader of DevAll workflows as targets, with their variables and the files of their subgraphs.

`${NAME}` in a workflow is resolved from these sources, the first that has a value wins: the caller (`--var`), `vars`
of the file, the environment, the `.env` file of the workflow's directory, and the one of the working directory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ...protocol.problems import Problem, did_you_mean
from ...protocol.settings import Settings
from ...protocol.workflow import Graph, Known, Load, Workflow, read_workflow
from ...protocol.workflow.dialect import DIALECTS, Mode
from ..engine.workflow.nodes.custom import node_types
from ..engine.workflow.plan import KINDS, function_files, functions_directory, functions_in, graphs_of, module_name
from ..io.environment import read_dotenv
from ..io.tenancy import environ, tenancy

_REFERENCE = re.compile(r"\$\{([A-Za-z0-9_]+)\}")


def read_flow(
    text: str,
    file: str,
    directory: Path,
    *,
    variables: Mapping[str, str],
    settings: Settings,
    strict: bool,
    compat: str | None,
    parts: Mapping[str, str] | None = None,
) -> tuple[Workflow | None, list[Problem]]:
    """Return the workflow in a file of `directory`, and all its problems. The workflow is None if it has errors.

    Args:
        parts: texts of subgraph files, by absolute path; other files are read from disk.

    Raises:
        ConfigError: a `.env` file cannot be read.
    """
    mode: Mode | None = "devall" if compat == "devall" else "standard" if compat in DIALECTS else None
    find = _loader(directory, file, parts or {})
    texts = [text, *variables.values()]

    def load(path: str, parent: str) -> tuple[str, str]:
        found = find(path, parent)
        texts.append(found[0])
        return found

    workflow, problems = read_workflow(
        text,
        file,
        variables=dict(variables),
        environ=_environ(directory),
        compat=mode,
        strict=strict,
        known=_known(directory, settings),
        load=load,
    )
    return workflow, problems + (list(_unused(variables, texts, file)) if workflow is not None else [])


def _unused(variables: Mapping[str, str], texts: Iterable[str], file: str) -> Iterator[Problem]:
    """Yield a warning for each variable that the caller sets and no file refers to; it may be misspelt."""
    named = {name for text in texts for name in _REFERENCE.findall(text)}
    for name in variables:
        if name not in named:
            yield Problem(
                severity="warning",
                file=file,
                code="unused_variable",
                message=f"the variable `{name}` is set by the caller, and nothing refers to `${{{name}}}`",
                hint=did_you_mean(name, sorted(named - variables.keys())),
            )


def _environ(directory: Path) -> dict[str, str]:
    beside = read_dotenv(directory / ".env")
    # The working directory of the process does not belong to a tenant.
    here = read_dotenv(Path(".env")) if tenancy.get() is None else {}
    return {**here, **beside, **environ()}


def _known(directory: Path, settings: Settings) -> Known:
    from ..engine.workflow.agent_request import known_providers
    from ..work.models.providers import withheld

    tools: dict[str, set[str]] = {}
    called = functions_directory(directory, "function_calling", environ())
    for name, path in functions_in(called).items():
        tools.setdefault(module_name(path, called), set()).add(name)
    return Known(
        conditions=frozenset(functions_in(functions_directory(directory, "edge", environ()))),
        processors=frozenset(functions_in(functions_directory(directory, "edge_processor", environ()))),
        tools={stem: frozenset(names) for stem, names in tools.items()},
        providers=known_providers(settings),
        node_types=frozenset(node_types()),
        withheld=lambda provider, base_url: withheld(provider, base_url, settings, environ()),
    )


def parts_of(graph: Graph, file: str) -> dict[str, str]:
    """Return the texts of a workflow's subgraph files, by absolute path; `file` is the workflow's own and left out."""
    sources = (each.source for each in graphs_of(graph))
    return {os.path.abspath(each.file): each.text for each in sources if each.text and each.file != file}  # noqa: PTH100 - no link is followed


def files_of_functions(directory: Path) -> list[Path]:
    """Return the Python files with functions that workflows in a directory may name."""
    return [file for kind in KINDS for file in function_files(functions_directory(directory, kind, environ()))]


def _loader(directory: Path, root: str, parts: Mapping[str, str]) -> Load:
    """Return a reader of subgraph files. It searches the directory of the naming file, that of the workflow, and its
    parent.
    """

    def load(path: str, parent: str) -> tuple[str, str]:
        beside = directory if parent == root else Path(parent).parent
        places = [beside, directory, directory.parent]
        for place in places:
            found = Path(os.path.normpath(place / Path(path).expanduser()))
            known = parts.get(os.path.abspath(found))  # noqa: PTH100 - no link is followed
            if known is not None:
                return known, _relative_name(found, directory, root)
            if found.is_file():
                try:
                    return found.read_text(encoding="utf-8"), _relative_name(found, directory, root)
                except UnicodeDecodeError as error:
                    raise OSError(f"{found} is not UTF-8 text: {error}") from None
        raise FileNotFoundError(f"it is neither in {' nor in '.join(dict.fromkeys(map(str, places)))}")

    return load


def _relative_name(found: Path, directory: Path, root: str) -> str:
    return root if found == directory / Path(root).name else str(found)
