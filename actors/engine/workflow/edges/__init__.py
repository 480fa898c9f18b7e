"""What edges do: `conditions` decide, `processors` change, `splits` take apart for nodes that run per unit.

They know messages and the structs of the file, and nothing of nodes or of a run.
"""
