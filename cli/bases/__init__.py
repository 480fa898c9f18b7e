"""What `callboard kb` does with knowledge bases.

`targets` says which are meant, and what can be seen of one; `commands` builds, shows and searches them. They know the
knowledge of a root and nothing of how it works.
"""
