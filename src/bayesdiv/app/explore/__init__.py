"""One page, for any browser, in which q, the prior and alpha are moved and the divergences seen.

The page computes for itself, in double precision, and holds all it needs: it opens from a file,
fetches nothing and can be sent to anyone.
"""
