"""What is minimised: the loss, its strength, and rival bounds on the evidence."""
