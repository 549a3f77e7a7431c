"""Tutorials: scripts that the documentation runs and shows."""
