"""Coresets: choosing and weighting rows, training through them, streams, radius paths."""
