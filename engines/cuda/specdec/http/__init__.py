"""The HTTP surface: one small file for each group of endpoints."""
