"""Where rows are and how they are read: row access, sources, row keys, sums that do not depend on their order."""
