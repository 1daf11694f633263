"""Measure, compare and judge the decode modes of an inference engine, with evidence."""

__version__ = "0.1.0"
