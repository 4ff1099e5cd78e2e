"""The product from outside: processes, signals, disasters."""
