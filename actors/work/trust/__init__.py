"""What of somebody's directory may be read into prompts or run: what its user has looked at, and nothing else.

In a directory that is new to the user nothing of it counts: no AGENTS.md, no skills, no hooks, no `.mcp.json`.
`callboard trust` writes down the contents of all those files (`record`), as they are at that moment; from then on a
file counts if its bytes are those, so that what a `git pull` has changed is asked about again, and the rest stays.

    place      where a workspace begins
    offered    the files of one that would count
    record     what the user trusts, on disk
    trusted    reads what is trusted, and says what is not
"""
