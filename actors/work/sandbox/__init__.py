"""Sandbox for the processes that agents start.

`of_run` builds a policy from the user's rules, and `confined` applies a policy to one process. Code that starts a
process calls `current.sandboxed`.

`bubblewrap` gives a process a file system of its own. Where bubblewrap does not work, `landlock` denies access to
everything outside of the policy. `seccomp` blocks system calls that no tool needs, and `privileges` drops root's
capabilities. `backends` detects which of them work on this machine. `secret_files` lists the files that are hidden from
every process.
"""
