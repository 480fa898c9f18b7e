"""Models on Google's Vertex AI: Gemini, Claude and open models, and whose requests to them are."""
