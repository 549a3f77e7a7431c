"""The paper's regression tables."""
