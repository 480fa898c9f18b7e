"""What runs spend: `accounts` that limit it, `reserve` to wait for room in one, the `meter` of a run, the `book` that
keeps sums by day, and the `report` of those. `days` are accounts of a server for each day, kept in the `ledger`."""
