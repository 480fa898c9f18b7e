"""Information flow labels: track the origin of text in a run, and require consent before private text is sent.

A page, an issue, or the answer of a server can hold instructions, and a model may follow them. No check can detect
whether it does. The text that a run has read, and the call that it is about to make, are known. So text of unknown
origin is `untrusted`, and text that may be the user's own business is `private`. A run carries the labels of all text
that it has read. If a run carries both, a call that sends data away causes a warning or a question to the user
(`flow`).

Labels follow mechanisms, never words. Command lines, results, and descriptions of servers are not interpreted. The
sandbox of a process determines the files that it can read and the hosts that it can reach (`sandbox/exposure`). A
source without any such facts gets both labels and counts as a sink.

Labels belong to the run, not to one of its conversations. Conversations of one run exchange text by results of
children, team messages, graph state, files, memories of MCP servers, and processes that outlive a call. A list of these
channels would never be complete. So a file that a labelled run writes needs no mark: the run still carries the label
when another of its conversations reads or executes the file.

    labels       the two labels, with the ways by which they came, and the labels of files, by location
    call_labels  labels of the result of a call, and calls that send data away
    flow         the labels that a run carries, and the check of a call
"""
