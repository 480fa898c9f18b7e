"""Reasoning options of requests, and stored reasoning of replies.

    effort             levels and token budgets of requests
    families           capabilities of models by name
    claude             rules of Claude on Anthropic's own API, Bedrock and Vertex AI
    stored_reasoning   reasoning items in a conversation; separation of `<think>` text from the answer

May import `protocol` only. The codecs import this package; it imports none of them. Start with `effort.wanted`.
"""
