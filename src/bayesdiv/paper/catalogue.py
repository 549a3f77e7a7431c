"""All tables and figures of the paper, each with its file."""

from bayesdiv.paper.item import Entry

CATALOGUE: tuple[Entry, ...] = (
    Entry("regression_rmse", "regression: RMSE of eight data sets", "Tab:rmse", "regression"),
    Entry("regression_nll", "regression: NLL of eight data sets", "Tab:nll", "regression"),
)


def chosen(names: list[str]) -> list[Entry]:
    """The entries of these names or groups; all of them for `all`.

    Examples:
        >>> [entry.name for entry in chosen(["regression"])]
        ['regression_rmse', 'regression_nll']
    """
    known = {entry.name for entry in CATALOGUE} | {entry.group for entry in CATALOGUE} | {"all"}
    for name in names:
        if name not in known:
            raise ValueError(f"a result must be one of {', '.join(sorted(known))}, got {name!r}")
    return [
        entry
        for entry in CATALOGUE
        if "all" in names or entry.name in names or entry.group in names
    ]
