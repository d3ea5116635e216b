"""Language models behind Triton."""
