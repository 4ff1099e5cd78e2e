"""What is told beside what is decided."""
