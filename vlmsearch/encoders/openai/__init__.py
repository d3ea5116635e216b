"""Encoders of servers with OpenAI's interface."""
