"""Knowledge bases on disk: built by `build`, read by `base`.

A base is a directory `<name>.kb/`. Its content is divided into generations. A new generation is built next to the
current one and never changes afterwards; `layout` documents the files and the locks. Each generation has a catalogue
(SQLite: sources and chunks), a word index (tantivy) and a vector index (usearch). Start with `base.KnowledgeBase` to
read, and with `build.build` to write. Sources, splitter and embedder are passed in, so this package imports no other
subpackage of `knowledge` at run time.
"""
