"""Cases (`protocol/cases`) are played, and held against what they expect.

`finding` has the files, `play` plays their cases side by side, `expectations` says what of a run is not as it was
expected, `judging` has a model say it, `report` puts it down for other programs. Begin with `play`.
"""
