"""What the processes of agents may do: `of_run` makes a policy of what the user says, `confined` holds a process to it.
The code that starts a process asks `current`.

`bubblewrap` gives a process a file system of its own; where it is not to be had, `landlock` refuses what the policy
leaves out. `seccomp` closes what no tool needs of the kernel, `privileges` gives up root's. `backends` finds which of
them works here, `secret_files` what is hidden from all.
"""
