"""Scripts that run in their own processes, started by path. They import only the standard library."""
