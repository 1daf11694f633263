"""A checkpoint or an image looked at without loading or running it."""
