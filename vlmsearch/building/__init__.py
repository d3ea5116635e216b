"""Recipes to bundles: export, quantise, verify. Imported by the command line, by nothing at run time."""
