"""Training on boxes and with categories, where each row's worst move has to be found. Every method proves a bound."""
