"""TensorRT-LLM: recipes, plans, engines, repositories and servers of language models."""
