"""The article on divergences: one page that computes for itself and fetches nothing."""
