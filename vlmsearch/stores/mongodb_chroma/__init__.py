"""Documents in MongoDB, vectors in Chroma."""
