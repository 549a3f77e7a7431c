"""Data in three parts: from a file or a known set, encoded, with noise or bias if asked."""
