"""Runs over time: what each came to, kept as Parquet and asked with SQL."""
