"""Workspace trust: only files that the user has approved are read into prompts or executed.

In a new directory nothing is used: no AGENTS.md, no skills, no hooks, no `.mcp.json`. `callboard trust` records the
current contents of all those files (`record`). From then on a file is used only if its bytes are the recorded ones.
After a `git pull`, the user is asked again about changed files only.

    place      root directory of a workspace
    offered    files of a workspace that need trust
    record     stored decisions of the user
    trusted    reads trusted files, and reports the others
"""
