"""Rules of this project that a program checks. Each module has `check(root)`, which lists the problems."""
