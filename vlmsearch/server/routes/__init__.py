"""What the service answers, a module a subject."""
