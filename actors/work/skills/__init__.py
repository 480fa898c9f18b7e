"""Agent Skills: instructions that an agent reads when it wants to do what they are for, with files and scripts beside.

    found      looks for them: the workspace's, the user's, those that come with us
    tool       what an agent is told of them, and the tool that reads them
    narrowing  what may be called while one is followed

The file itself is read by `protocol.skill`.
"""
