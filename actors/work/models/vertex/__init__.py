"""Google's Vertex AI: codecs of Gemini, Claude and open models, addresses, and credentials."""
