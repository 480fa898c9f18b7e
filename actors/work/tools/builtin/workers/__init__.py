"""Small programs that run as separate processes, by path: `python -I workers/search.py`.

They import only the standard library, and no module imports them.
"""
