"""What runs spend: `accounts` that limit it, `reserve` to wait for room in one, the `meter` that counts for a run."""
