"""TensorRT: engines that run, and how they are built."""
