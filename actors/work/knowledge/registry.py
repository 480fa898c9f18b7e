"""Named knowledge bases, which belong to no agent.

    <config>/knowledge/handbook.yaml     its sources and settings (`protocol.knowledge`)
    <config>/knowledge/handbook.kb/      the base, once it is built
    <config>/rags/manual.yaml            a file of Loki's: also known by its name, and imported on first use

Instead of a name, users can always give the path of a `.kb` directory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from ....protocol.errors import InvalidFile, UsageError
from ....protocol.knowledge import KnowledgeFile, read_knowledge_file
from ....protocol.problems import Problem, did_you_mean
from ...io.atomic_write import write_whole
from ...io.directories import user_folder
from .base.layout import ENDING, BaseLayout
from .recipe import Recipe, build_settings, read_recipe
from .sources.specs import is_wild, parse

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def folder(config_dir: Path) -> Path:
    """Return the directory of named bases."""
    return config_dir / "knowledge"


def names(config_dir: Path) -> list[str]:
    """Return the names of all bases that a file defines, including Loki's, sorted."""
    folders = (folder(config_dir), user_folder("rags", config_dir))
    return sorted({path.stem for each in folders if each.is_dir() for path in each.glob("*.yaml") if path.is_file()})


def file_of(name: str, config_dir: Path) -> Path | None:
    """Return the definition file of the base with this name; None if there is none. Our file wins over Loki's."""
    if not _NAME.fullmatch(name):
        return None
    files = (folder(config_dir) / f"{name}.yaml", user_folder("rags", config_dir) / f"{name}.yaml")
    return next((file for file in files if file.is_file()), None)


def warnings(name: str, config_dir: Path) -> list[Problem]:
    """Return the problems in the base's definition file that do not prevent its use; none for a file of Loki's.

    Raises:
        InvalidFile: the file has errors.
    """
    file = file_of(name, config_dir)
    return [] if file is None or file.parent != folder(config_dir) else _read(file)[1]


def home(name: str, config_dir: Path) -> Path:
    """Return the directory of the base of this name."""
    return folder(config_dir) / f"{name}{ENDING}"


def is_path(name: str) -> bool:
    """Return whether the text is the path of a base's directory, and not a name."""
    return os.sep in name or name.endswith(ENDING)


def named(name: str, config_dir: Path) -> Recipe:
    """Return the recipe of a base, by its name or its directory.

    Raises:
        UsageError: there is no such base.
        InvalidFile: its file has errors.
        KnowledgeError: the recipe in the directory can't be read.
    """
    if is_path(name):
        return _at(Path(name).expanduser(), config_dir)
    file = file_of(name, config_dir)
    if file is None:
        known, called = names(config_dir), name[:60]
        hint = did_you_mean(name, known) or (
            f"there are: {', '.join(known)}" if known else "there are no knowledge bases yet"
        )
        # The list of names is for readers of agents only; others get the text without it.
        text = f"there is no knowledge base '{called}'; {hint} (create it: callboard kb new {called} SOURCE...)"
        raise UsageError(text).for_readers("read:agents", f"there is no knowledge base '{called}'")
    directory = home(name, config_dir)
    what = f"knowledge base '{name}'"
    if file.parent != folder(config_dir):
        return Recipe(what=what, target=name, directory=directory, documents=(), base=config_dir, upstream=file)
    said, _ = _read(file)
    return Recipe(
        what=what,
        target=name,
        directory=directory,
        documents=said.documents,
        base=file.parent / Path(said.relative_to).expanduser(),
        **build_settings(said),
    )


def make(
    name: str,
    sources: Sequence[str],
    config_dir: Path,
    *,
    loaders: Sequence[str] = (),
    description: str = "",
    embedding_model: str | None = None,
    chunk_size: int | None = None,
    chunk_overlap: int | None = None,
    language: str | None = None,
) -> Path:
    """Write the definition file of a new base; nothing is built. Relative sources start from the working directory.

    Raises:
        UsageError: the name is taken or invalid, a source is invalid, or the file can't be written.
    """
    import yaml

    if not _NAME.fullmatch(name) or name.endswith(ENDING):
        raise UsageError(
            f"'{name[:60]}' can't be the name of a knowledge base: a name has up to 200 letters, digits, "
            f"'-', '_' and '.', begins with a letter or a digit, and does not end with '{ENDING}', which is "
            "the ending of its directory"
        )
    if taken := file_of(name, config_dir):
        raise UsageError(f"{taken} exists already and was not changed; edit it, or choose another name")
    # Checked here as well as in `split`: the user should learn of it now, not at the first build.
    if chunk_size is not None and chunk_overlap is not None and chunk_overlap >= chunk_size:
        raise UsageError(f"--chunk-overlap {chunk_overlap} must be less than --chunk-size {chunk_size}")
    for source in sources:
        _check(source, loaders)
    keys = {
        "description": description,
        # The file is stored in the configuration directory, so it records where relative sources start.
        "relative_to": os.fspath(Path.cwd()),
        "documents": list(sources),
        "embedding_model": embedding_model,
        "chunk_size": chunk_size,
        "chunk_overlap": chunk_overlap,
        "language": language,
    }
    said = yaml.safe_dump({key: value for key, value in keys.items() if value not in ("", None)}, sort_keys=False)
    file = folder(config_dir) / f"{name}.yaml"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{_HEAD.format(name=name)}{said}", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{error.filename or file} can't be written: {error.strerror}") from error
    return file


def replace(name: str, text: str, config_dir: Path) -> None:
    """Replace the definition file of a base in `<config>/knowledge`.

    Raises:
        InvalidFile: the text has errors; nothing is written.
        UsageError: the file can't be written.
    """
    file = folder(config_dir) / f"{name}.yaml"
    said, problems = read_knowledge_file(text, str(file))
    if said is None:
        raise InvalidFile(f"the new text of {file} has errors:\n" + "\n".join(map(str, problems)), problems)
    try:
        # Other processes may build from the file at this moment.
        write_whole(file, text.encode())
    except OSError as error:
        raise UsageError(f"{file} can't be written: {error.strerror}") from error


_HEAD = """\
# Sources and settings of the knowledge base '{name}'. After a change: callboard kb build {name}
# Every key: docs/knowledge.md, or callboard schema knowledge
"""


def _check(source: str, loaders: Sequence[str]) -> None:
    """Check that a source is valid, and that a single file or directory exists."""
    spec = parse(source, loaders)
    if spec.kind == "path" and not is_wild(spec.target) and not Path(spec.target).expanduser().exists():
        name, colon, _ = source.partition(":")
        is_loader = colon and _NAME.fullmatch(name)
        hint = f", and `document_loaders` in config.yaml has no loader '{name}'" if is_loader else ""
        raise UsageError(f"{source}: there is no such file or directory{hint}")


def _at(directory: Path, config_dir: Path) -> Recipe:
    """Return the recipe of the base in this directory, or of the file next to it if it is not built yet."""
    layout = BaseLayout(directory)
    if layout.recipe.is_file():
        return read_recipe(directory)
    if directory.absolute().parent == folder(config_dir).absolute() and file_of(directory.stem, config_dir):
        return named(directory.stem, config_dir)
    if layout.current.is_file():
        raise UsageError(
            f"{directory} has no {layout.recipe.name}, the file that lists its sources; build the base again"
        )
    raise UsageError(f"there is no knowledge base in {directory}")


def _read(file: Path) -> tuple[KnowledgeFile, list[Problem]]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the file is not UTF-8 text"
        raise InvalidFile(f"{file} can't be read: {reason}") from error
    said, problems = read_knowledge_file(text, str(file))
    if said is None:
        raise InvalidFile(f"{file} has errors:\n" + "\n".join(map(str, problems)), problems)
    return said, problems
