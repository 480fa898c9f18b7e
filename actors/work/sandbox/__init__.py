"""Sandbox for the processes that agents start.

Code that starts a process calls `run_sandbox.sandboxed`. `run_sandbox` combines the user's rules, `launch` makes a
`policy` from them, and `backends` applies the policy to one process. `grants` are permissions that the user gives while
a run works, and `egress` is the network of processes with a list of `hosts`.

`bubblewrap` gives a process a file system of its own. Where bubblewrap does not work, `landlock` denies access to
everything outside of the policy. `seccomp` blocks system calls that no tool needs. `protected_paths` and
`git_directories` are the files that are hidden or read-only for every process, and `variables` its environment.
`exposure` derives from the rules which data a process could read. `probes` is the self-test of `doctor`.
"""
