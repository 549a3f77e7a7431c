"""The paper's tables and figures, one file each; computed here, drawn from committed results."""
