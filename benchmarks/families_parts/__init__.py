"""Parts of `bench_families.py`, a file for each family."""
