"""Fetched records, written as every media type."""
