"""Measurements of what is the user's own: models, an index, a service, a GPU, a Triton or LLM server."""
