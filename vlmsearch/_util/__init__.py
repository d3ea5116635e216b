"""What every room may use: files, locks, addresses, threads, text. Knows nothing of retrieval."""
