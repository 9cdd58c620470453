"""Coresets: how rows are drawn and weighted, the loop that refines a model through them, streams, radius paths."""
