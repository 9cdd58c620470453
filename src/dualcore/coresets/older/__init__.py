"""Names of before, kept for one version."""
