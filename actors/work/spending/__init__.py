"""Model spending: limits, reservations, usage totals, and daily limits.

May import `protocol`, `supervisors` and `actors/io`.

Five names to know:

    Account         limits of a run, a node or an agent, and its spending; `reserve` waits for room in it (`accounts`)
    Meter           usage of one run, by model and by node (`meter`)
    SpendingBook    sums by day, key, agent and model, for all processes of a user (`book`)
    Days            accounts of a server for each day, above the accounts of its runs (`days`)
    Ledger          spending of a day in a file or database, correct after `kill -9` (`ledger`)

`report` makes the usage reports of `callboard usage` and the control channel. Start with `accounts`: its docstring
explains reservations.
"""
