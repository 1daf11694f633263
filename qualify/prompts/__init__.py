"""Prompts of an exact token shape, built before any clock starts."""
