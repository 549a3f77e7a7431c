"""How it is learned: the loop, its batches and its steps."""
