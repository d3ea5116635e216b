"""The embedded store: one SQLite database with documents, words, filters and vectors."""
