"""Servers with OpenAI's interface."""
