"""What is watched while the command runs."""
