"""Memories of nodes: the stores of a graph's `memory`, read and written at the stages that its nodes name.

    Memories      stores of one graph, and their use by its nodes; the only name that nodes use (`memories`)
    MemoryStore   interface of a store, with its four kinds (`stores`)
    Notebook      texts and vectors in one file that several processes can use concurrently (`notebook`)

May import `plan` and `messages` of the package above. Start with `memories`.
"""
