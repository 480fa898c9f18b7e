"""What requests and replies hold, and how a run's events are told in the words of others. No I/O in here."""
