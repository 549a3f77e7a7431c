"""All tables, figures, theorems, algorithms and headline claims of the paper, each with its file.

Numbers are those of the typeset paper. Its appendices continue the count of figures and tables,
with the letter of the appendix in front.
"""

from reproduction.item import Entry

CATALOGUE: tuple[Entry, ...] = (
    Entry("claims_accuracy", "5 % better accuracy on noisy CIFAR-10", "Abstract", "claims"),
    Entry("claims_regression", "8 % better on a regression set", "Abstract", "claims"),
    Entry("claims_false_negatives", "13 % fewer false negatives", "Abstract", "claims"),
    Entry("theorem_1", "JS-A is bounded", "Theorem 1, eq. 11", "analytical"),
    Entry("theorem_2", "when F_JSG exceeds F_KL", "Theorem 2", "analytical"),
    Entry("theorem_3", "when the threshold lies below 1", "Theorem 3", "analytical"),
    Entry("corollary", "both theorems together", "Corollary", "analytical"),
    Entry("algorithm_1", "JS-G in closed form", "Algorithm 1, eq. 25", "algorithms"),
    Entry("algorithm_2", "JS-A by samples, and its time", "Algorithm 2, eq. 23", "algorithms"),
    Entry("boundedness", "KL, JS-G infinite, JS-A bounded", "Figures 1 and B.12", "analytical"),
    Entry("divergence_growth", "divergences as q leaves p", "Figure 2", "analytical"),
    Entry("divergence_areas", "divergences as areas", "Figure A.11", "analytical"),
    Entry("divergence_properties", "bounded, symmetric, analytical", "Table A.5", "analytical"),
    Entry("jsa_upper_bound", "upper bound of JS-A", "Figure B.13", "analytical"),
    Entry("monte_carlo_error", "Monte Carlo and the closed form", "Figure D.14", "analytical"),
    Entry("sign_of_difference", "sign of F_JSG - F_KL", "Figure F.15", "analytical"),
    Entry("regression_rmse", "regression: RMSE", "Table 3", "regression"),
    Entry("regression_nll", "regression: NLL", "Table 4", "regression"),
    Entry("training_curves", "training and validation", "Figure 3", "images"),
    Entry("mechanism", "JS regularises more than KL", "Section 7.1, Figure 3", "images"),
    Entry("test_accuracy", "CIFAR-10: accuracy against noise", "Figure 4 (a, b)", "images"),
    Entry("histopathology", "histopathology: accuracy and ROC", "Figure 4 (c, d)", "images"),
    Entry("confusion", "histopathology: confusion matrices", "Figure 5", "images"),
    Entry("pretrained_start", "a start from ImageNet weights", "Figure 5, pretrained", "images"),
    Entry("deterministic_baseline", "a deterministic network", "Figure 6", "images"),
    Entry("lambda_kl_baseline", "KL with a tuned strength", "Figure 7", "images"),
    Entry("unmodified_js", "unmodified JS divergences", "Figure 8", "images"),
    Entry("cifar100", "CIFAR-100 with noise", "Figure 9", "images"),
    Entry("loss_evolution", "both parts of the loss over training", "Figure 10", "images"),
    Entry("time_per_epoch", "seconds per epoch", "Table 1", "images"),
    Entry("uncertainty_metrics", "test NLL, loss and ECE", "Table 2", "images"),
    Entry("tuned_cifar10", "tuned settings, CIFAR-10", "Table H.6", "images"),
    Entry("tuned_histopathology", "tuned settings, histopathology", "Table H.7", "images"),
    Entry("authors_protocol", "the authors' settings and formulas", "beyond the paper", "images"),
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
