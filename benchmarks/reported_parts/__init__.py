"""Each reported fault on the data on which it was reported; `benchmarks/reported_faults.py` runs them."""
