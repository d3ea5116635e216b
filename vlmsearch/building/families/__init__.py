"""One module for each family of models: reads its configuration and writes its towers as graphs."""
