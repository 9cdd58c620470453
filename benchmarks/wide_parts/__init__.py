"""The parts of `benchmarks/bench_wide.py`: each is a function that takes `Asked` and returns lines of a table."""
