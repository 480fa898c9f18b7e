"""Models on Amazon Bedrock: their formats, and the signatures that AWS wants."""
