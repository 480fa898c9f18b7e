"""Agent Skills: instructions that an agent reads before a kind of work, with files and scripts in the same directory.

    discovery      finds the skills of the workspace, the user, and Callboard
    tool           the prompt block about skills, and the tool that reads them
    allowed_tools  restriction of tools while a skill is followed

`protocol.skill` parses a skill's file.
"""
