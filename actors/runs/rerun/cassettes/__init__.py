"""Cassettes (`protocol/cassette`): `recording` writes one while a run is played, `playing` is in the world's place.

`places` has the paths that differ from machine to machine, `content` what a request says as pieces, `shelf` the lines
of a cassette as they are used up. Begin with `playing`.
"""
