"""Knowledge bases on disk: built by `build`, read by `base`.

A base is a directory `<name>.kb/`. What is in it belongs to a generation, which is made beside the one before and never
changed afterwards: `layout` says what lies where and who locks what. Each has a catalogue (SQLite: sources and chunks),
an index of words (tantivy) and one of vectors (usearch). Start with `base.Base` to read, with `build.build` to write.
It knows `protocol.knowledge` and no other room of this floor: sources, splitter and embedder are given to it.
"""
