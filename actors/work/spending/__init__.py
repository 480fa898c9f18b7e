"""Model spending: limits, reservations, usage totals, and daily limits.

`accounts` limit a run, and `reserve` waits for room in an account. The `meter` counts the usage of a run. The `book`
stores sums by day, and `report` prints them. `days` are accounts of a server for each day, stored in the `ledger`.
"""
