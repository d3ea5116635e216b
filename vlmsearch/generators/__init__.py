"""Generators: prompts to text."""
