"""Tools of servers for models, and requests of servers to the user and to models.

    chosen         servers that an agent's file or a node selects, and the mode in which their tools are offered
    tool_list      tools of one conversation, updated from turn to turn; three tools for a whole server
    direct         each tool under its own name; texts, images, documents and resources of its result for a model
    names          names of server tools
    view           servers as one conversation uses them; requests of servers to the model; sign-in
    elicitation    questions of servers to the user

May import `pool`, `links` and `auth`, and `tools`, `journal` and `playback` of this layer. Start with `view`.
"""
