"""What runs inside Triton's Python models."""
