"""Environment of functions that were written for DevAll. These modules import nothing from Callboard.

`host` is loaded by path into the process of a tool call, and into the process of a run's edge functions. The other
files replace modules of DevAll, for example `entity.messages`, if no checkout of DevAll provides them
(`host.STAND_INS`). They run under the Python that the functions need, so they are written for Python 3.8.
"""
