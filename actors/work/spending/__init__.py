"""What runs spend: `accounts` that limit it, `reserve` to wait for room in one, the `meter` of a run,
the `book` that keeps sums by day, and the `report` of those."""
