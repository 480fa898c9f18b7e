"""From a workflow to a graph agent: `reasons` says what stands in the way, `convert` writes the files, `replay` is the
part of them that passes messages on. It has no imports of ours, since it is copied beside the graph.
"""
