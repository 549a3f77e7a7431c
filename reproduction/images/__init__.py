"""The paper's image experiments."""
