"""Small programs that run as processes of their own, by path: `python -I workers/search.py`.

They import nothing but the standard library, and nothing imports them.
"""
