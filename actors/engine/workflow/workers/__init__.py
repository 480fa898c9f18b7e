"""Programs that run in other processes, without Callboard. They import only the standard library.

edges                 calls the functions of a workflow's edges; started by path (`edge_functions`)
converted_workflow    script of a converted workflow; copied next to its graph (`convert`)
devall/               environment of functions that were written for DevAll
"""
