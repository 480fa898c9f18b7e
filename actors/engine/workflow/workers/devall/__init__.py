"""What functions that were written for DevAll find when they are loaded and called. They import nothing of ours.

`host` is loaded, by its path, into the process of a tool call and into that of a run's edge functions. The other files
stand in for modules of DevAll's own, `entity.messages` for one, where no checkout of DevAll has them; `host.STAND_INS`
says which for which. Whatever Python the functions need runs them, so they are written for Python 3.8.
"""
