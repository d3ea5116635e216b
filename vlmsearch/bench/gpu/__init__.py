"""What a GPU does with engines, beside TensorRT's defaults and torch."""
