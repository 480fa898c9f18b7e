"""The vocabulary of the kernel (`supervisors`): its errors, events, messages and questions.

It knows msgspec and nothing else, so that the kernel can be used alone. Start with `messages`.
"""
