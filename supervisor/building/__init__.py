"""Training images: made of a folder on the user's computer, by Cloud Build or by docker, pushed, named by digest."""
