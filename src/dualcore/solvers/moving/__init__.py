"""Training where rows are moved one by one: boxes and categories. Each method returns a lower bound with the model."""
