"""What `callboard kb` does with knowledge bases.

`targets` says which are meant and `seen` what can be seen of one. The commands: `shelf` (new, list), `building` (build,
rebuild, drop), `status`, `search` (and export). They know the knowledge of a root and nothing of how it works.
"""
