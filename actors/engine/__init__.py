"""Deciders of graphs, workflows and conversations, and the driver that runs them.

The layer above `work`, whose subpackages carry out the effects.
"""
