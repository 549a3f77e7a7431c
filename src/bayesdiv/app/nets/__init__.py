"""Networks that a run can be restored from: each a recipe, a frozen dataclass with `build`."""
