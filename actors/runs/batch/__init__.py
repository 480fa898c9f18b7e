"""Batches: many tasks for one target. `tasks` reads them, `journal` stores their results, `batch` runs the rest."""
