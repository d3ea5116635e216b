"""From bundles to a folder that Triton serves."""
