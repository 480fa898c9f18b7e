"""Who decides what is done next: graphs, workflows, conversations. Knows `work`, whose rooms carry it out."""
