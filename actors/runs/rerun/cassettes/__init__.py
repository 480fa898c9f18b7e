"""Cassettes (`protocol/cassette`): `recording` writes one while a run executes, `playing` replays a run from one.

`places` names paths that differ between machines, `content` divides requests into pieces, and `remaining_lines`
tracks which lines of a cassette are still unused. Begin with `playing`.
"""
