"""What is announced is sent."""
