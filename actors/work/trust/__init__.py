"""Workspace trust: only files that the user has approved are read into prompts or executed.

In a new directory nothing is used: no AGENTS.md, no skills, no hooks, no `.mcp.json`. `callboard trust` records the
current contents of all those files (`decisions`). From then on a file is used only if its bytes are the recorded ones.
After a `git pull`, the user is asked again about changed files only.

    workspace_files  root of a workspace, and its files that need trust
    decisions        stored decisions of the user
    trusted_files    reads trusted files, and reports the others
    summary          shows what a workspace would load if it were trusted

The package may import `protocol` and `io`. Start with `trusted_files.Trusted`.
"""
