"""What is minimised: the loss, and its strength."""
