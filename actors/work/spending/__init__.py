"""Model spending: limits, reservations, usage totals, and daily limits.

    accounts    limits of a run, a node or an agent (`Account`), and `reserve`, which waits for room before a request
    meter       usage of one run, by model and by node (`Meter`)
    book        sums by day, key, agent and model, for all processes of a user (`SpendingBook`)
    days        accounts of a server for each day, above the accounts of its runs (`Days`)
    ledger      the spending of a day in a file or database, correct after `kill -9` (`Ledger`)
    report      sums of the book and usage of the daily limits, for `callboard usage` and the control channel

May import `protocol`, `supervisors` and `actors/io`. Start with `accounts`: its docstring explains reservations.
"""
