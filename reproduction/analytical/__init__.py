"""Tables and figures of the paper that follow from formulas alone."""
