"""All tables and figures of the paper, each with its file."""

from reproduction.item import Entry

CATALOGUE: tuple[Entry, ...] = (
    Entry("boundedness", "KL, JS-G infinite, JS-A bounded", "fig:jsa_bound", "analytical"),
    Entry("divergence_growth", "divergences as q leaves p", "fig:div_comp", "analytical"),
    Entry("divergence_areas", "divergences as areas", "fig:divergences", "analytical"),
    Entry("divergence_properties", "bounded, symmetric, analytical", "tab:prop", "analytical"),
    Entry("jsa_upper_bound", "upper bound of JS-A", "fig:ub_jsa", "analytical"),
    Entry("monte_carlo_error", "Monte Carlo and the closed form", "fig:mc_est", "analytical"),
    Entry("sign_of_difference", "sign of F_JSG - F_KL", "fig:theorem3", "analytical"),
    Entry("regression_rmse", "regression: RMSE of eight data sets", "Tab:rmse", "regression"),
    Entry("regression_nll", "regression: NLL of eight data sets", "Tab:nll", "regression"),
    Entry("training_curves", "training and validation", "fig:training_Cifar", "images"),
    Entry("test_accuracy", "CIFAR-10: accuracy against noise", "fig:pt1_pt5", "images"),
    Entry("histopathology", "histopathology: accuracy and ROC", "fig:acc_histo, fig:roc", "images"),
    Entry("confusion", "histopathology: confusion matrices", "fig:confa_hist", "images"),
    Entry("deterministic_baseline", "a deterministic network", "fig:dnn_Cifar", "images"),
    Entry("lambda_kl_baseline", "KL with a tuned strength", "fig:train_lamdakl", "images"),
    Entry("unmodified_js", "unmodified JS divergences", "fig:train_unmod", "images"),
    Entry("cifar100", "CIFAR-100 with noise", "fig:Cifar100", "images"),
    Entry("loss_evolution", "both parts of the loss over training", "fig:loss", "images"),
    Entry("time_per_epoch", "seconds an epoch", "Tab:comp1", "images"),
    Entry("uncertainty_metrics", "test NLL, loss and ECE", "Tab:comp2", "images"),
    Entry("tuned_cifar10", "tuned settings, CIFAR-10", "tab:Cifar", "images"),
    Entry("tuned_histopathology", "tuned settings, histopathology", "tab:histo", "images"),
    Entry("authors_protocol", "CIFAR-10: their settings and ours", "beyond the paper", "images"),
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
