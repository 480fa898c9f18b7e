"""Kinds of text by file name or media type. If the contents contradict them, the contents win (`read`)."""

from __future__ import annotations

import posixpath

_SAME = "dart go java lua nim nix php proto r sql swift toml zig"
"""Languages whose file ending is their name."""

_CODE = {
    "ada": "adb ads",
    "bash": "sh bash zsh ksh fish",
    "c": "c h",
    "clojure": "clj cljs cljc edn",
    "cpp": "cc cpp cxx hh hpp hxx ino",
    "csharp": "cs",
    "css": "css scss sass less",
    "elixir": "ex exs",
    "erlang": "erl hrl",
    "fortran": "f f90 f95 for",
    "fsharp": "fs fsi fsx",
    "graphql": "graphql gql",
    "groovy": "groovy gradle",
    "haskell": "hs lhs",
    "hcl": "tf hcl",
    "javascript": "js mjs cjs jsx",
    "julia": "jl",
    "kotlin": "kt kts",
    "ocaml": "ml mli",
    "perl": "pl pm",
    "powershell": "ps1 psm1",
    "python": "py pyi pyw",
    "ruby": "rb rake gemspec",
    "rust": "rs",
    "scala": "scala sc sbt",
    "solidity": "sol",
    "typescript": "ts mts cts tsx",
    "vue": "vue svelte",
    "xml": "xml xsd xsl xslt svg plist",
    "yaml": "yaml yml",
}
_TEXTS = {
    "markdown": "md markdown mdx mdown qmd rmd",
    "html": "html htm xhtml",
    "csv": "csv",
    "tsv": "tsv tab",
    "json": "json geojson ipynb webmanifest",
    "jsonl": "jsonl ndjson",
    "pdf": "pdf",
    "docx": "docx docm dotx",
    "pptx": "pptx pptm ppsx potx",
    "xlsx": "xlsx xlsm xltx",
    "odt": "odt ott odp",
}
_NAMES = {
    "dockerfile": "code:dockerfile",
    "containerfile": "code:dockerfile",
    "makefile": "code:make",
    "gnumakefile": "code:make",
    "cmakelists.txt": "code:cmake",
    "rakefile": "code:ruby",
    "gemfile": "code:ruby",
    "jenkinsfile": "code:groovy",
}
_BY_SUFFIX = {suffix: kind for kind, suffixes in _TEXTS.items() for suffix in suffixes.split()} | {
    suffix: f"code:{language}"
    for language, suffixes in (*_CODE.items(), *((each, each) for each in _SAME.split()))
    for suffix in suffixes.split()
}
_BY_MEDIA = {
    "text/html": "html",
    "application/xhtml+xml": "html",
    "text/markdown": "markdown",
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
    "application/json": "json",
    "application/x-ndjson": "jsonl",
    "application/jsonl": "jsonl",
    "application/xml": "code:xml",
    "text/xml": "code:xml",
    "text/css": "code:css",
    "text/javascript": "code:javascript",
    "application/javascript": "code:javascript",
    "application/yaml": "code:yaml",
    "application/pdf": "pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "pptx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.oasis.opendocument.text": "odt",
    "application/vnd.oasis.opendocument.presentation": "odt",
}

PACKED = frozenset(("pdf", "docx", "pptx", "xlsx", "odt"))
"""Kinds of files that are not text themselves."""


def by_name(path: str) -> str:
    """Return the kind for a file name; `text` if it is unknown."""
    name = posixpath.basename(path.rstrip("/")).lower()
    return _NAMES.get(name) or _BY_SUFFIX.get(suffix(name), "text")


def suffix(path: str) -> str:
    """Return the file ending of a path, in lower case and without the dot."""
    return posixpath.splitext(path.rstrip("/").lower())[1].removeprefix(".")


def by_media(media: str) -> str:
    """Return the kind for a media type: `text` for unknown text types, "" for types that are not text."""
    known = _BY_MEDIA.get(media)
    # Structured syntax suffixes (RFC 6839): `application/ld+json` is JSON, `image/svg+xml` is XML.
    if known is None and media.endswith("+json"):
        return "json"
    if known is None and media.endswith("+xml"):
        return "code:xml"
    return known or ("text" if media.startswith("text/") else "")
