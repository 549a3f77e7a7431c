"""The claims of the abstract, in figures."""
