"""Dumps of the threads of processes that hang, and the program that made them."""
