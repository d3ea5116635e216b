"""Language models in this process."""
