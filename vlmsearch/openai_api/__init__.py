"""HTTP to servers: one client for all of them, and the rules of OpenAI's interface and of those like it."""
