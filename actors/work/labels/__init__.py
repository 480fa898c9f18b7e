"""Where what an agent knows comes from, and where it must not go without a person's word.

A page, an issue, a server's answer may hold instructions, and a model may follow them. Whether it does nobody can know;
what it has read and what it is about to do can be known. So what comes from outside carries `untrusted`, what is the
user's own business carries `private`, and a conversation, its children and its letters carry what they were made from.
A call that sends something away, from a conversation that carries both, is warned of, or asked about (`flow`).

    labels    the two labels, with the ways by which they came
    setting   what a run's directory is
    sources   what the result of a call carries
    sinks     which calls send something away
    flow      what a conversation carries, and what is done about a call
"""
