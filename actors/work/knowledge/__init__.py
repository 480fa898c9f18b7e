"""Knowledge bases (RAG): find, read, split, embed and store documents, so that agents can search them.

`sources` finds documents and `reading` extracts their text. `split` splits the text into chunks, `embed` computes
vectors, and `base` stores both on disk and answers queries. These subpackages are connected only through the types of
`protocol.knowledge`. The modules above them: `recipe` and `registry` define bases, `service` builds and opens them,
`run_knowledge` prepares them for one run, and `loki_import` takes over Loki's.

The package may import `protocol`, `supervisors`, `io`, and of `work` `models`, `sandbox` and `spending`. Names to know:
`recipe.Recipe`, `service.Knowledge`, `sources.gather.gather`, `base.build.build`, `base.base.KnowledgeBase`. Start with
`service`, then `sources.gather`.
"""
