"""A run once more: forks. `steps` names the rows of a durable run, `fork` begins another run with some of them."""
