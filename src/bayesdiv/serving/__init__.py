"""A trained model as one graph from raw inputs to named outputs: the parts of `bayesdiv.export`."""
