"""Hostile problems, judged by a referee that shares no code with the package: ``python -m tests.torture --help``."""
