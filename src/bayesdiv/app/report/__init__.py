"""Pages for a browser, each one file: a report on runs, and the paper reproduced.

A page holds all it needs, its charts and images included: it opens from a file, fetches nothing and
can be sent to anyone.
"""
