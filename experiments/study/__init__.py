"""Should I use it? Robust models beside tuned penalties, on public tables under eight kinds of trouble."""
