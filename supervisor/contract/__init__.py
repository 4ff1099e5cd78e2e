"""What supervisor and agent exchange, and where each of them finds it; Python 3.8, standard library only."""
