"""How much models think before they answer, and what is kept of it.

`effort` has the levels and budgets that requests are made with, `families` what models of a name can, `claude` the
rules of Claude on every platform that has it, `woven` how thinking is kept in a conversation, `tags` parts it from an
answer that it stands before. Nothing here knows a codec.
"""
