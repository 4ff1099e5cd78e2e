"""What was decided is carried out."""
