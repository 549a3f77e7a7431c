"""Data in three parts: from a file or a known set, encoded, with noise if asked."""
