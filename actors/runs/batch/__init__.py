"""Many tasks for one target: `tasks` reads them, `journal` keeps what came of each, `batch` runs what is left to do."""
