"""The paper reproduced: every table, figure, theorem, algorithm and headline claim."""
