"""What supervisor and agent say to each other, and where they find it; Python 3.8, standard library only."""
