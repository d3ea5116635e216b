"""The commands of the benchmarks."""
