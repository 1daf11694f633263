"""Findings as a summary, a page and a terminal table."""
