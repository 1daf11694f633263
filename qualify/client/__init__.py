"""Bytes in, timed tokens out."""
