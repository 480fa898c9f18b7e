"""Tools of servers for models, and requests of servers to the user and to models."""
