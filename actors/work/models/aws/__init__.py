"""Amazon Bedrock: codec, prompt caching, credentials and request signing."""
