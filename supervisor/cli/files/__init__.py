"""Commands and helpers about files, code and images."""
