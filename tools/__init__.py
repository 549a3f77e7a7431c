"""What the project itself is built with; nothing of it is installed."""
