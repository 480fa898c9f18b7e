"""Test cases (`protocol/cases`): they are executed, and compared with their expectations.

`finding` lists the files, `play` runs their cases concurrently. `expectations` compares a run with what a case
expects, `judging` lets a model do that, and `report` writes the results for other programs. Begin with `play`.
"""
