"""What is learned about the weights: one file per family of distributions."""
