"""Small programs that run as processes of their own, by path. They import only the standard library."""
