"""Pages for a browser, each one file that fetches nothing: on runs, and on the paper."""
