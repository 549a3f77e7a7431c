"""The two algorithms of the paper, run and timed."""
