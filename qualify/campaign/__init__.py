"""A campaign file, read strictly."""
