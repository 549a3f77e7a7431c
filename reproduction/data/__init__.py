"""Readers of data that only the paper's experiments need."""
