"""What machines cost, and what they are made of."""
