"""Small real data sets that come with scikit-learn, so that nothing is downloaded."""

from bayesdiv.app.data.columns import Numeric
from bayesdiv.app.data.encoder import Encoder
from bayesdiv.app.data.table import Table
from bayesdiv.app.tasks.classification import Classification
from bayesdiv.app.tasks.regression import Regression

_GREY_LEVELS = 16  # pixels of the digits are counts from 0 to 16


def diabetes() -> Table:
    """Disease progression a year on, of 442 patients (Efron et al. 2004): a regression.

    Ten measurements in their own units: scikit-learn's scaled ones have seen the test rows.

    Examples:
        >>> len(diabetes().frame)
        442
    """
    from sklearn.datasets import load_diabetes

    found = load_diabetes(as_frame=True, scaled=False)
    return Table("diabetes", found.data.assign(progression=found.target), "progression", Regression)


def breast_cancer() -> Table:
    """Diagnosis of 569 breast tumours from 30 measurements of their cells (Wolberg et al. 1995).

    Class 0 is benign and class 1 malignant, the one that must not be missed. This is the reverse
    of scikit-learn's numbers.

    Examples:
        >>> breast_cancer().frame["diagnosis"].value_counts().to_dict()
        {'benign': 357, 'malignant': 212}
    """
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer(as_frame=True)
    diagnosis = [str(found.target_names[code]) for code in found.target]
    return Table(
        "breast_cancer", found.data.assign(diagnosis=diagnosis), "diagnosis", Classification
    )


def digits() -> Table:
    """Handwritten digits, 1797 grey images of 8 by 8 pixels in [0, 1]: ten classes.

    Pixels are divided by 16 alike, so that the encoder needs no training rows; x has the shape
    (1, 8, 8) of an image with one channel.

    Examples:
        >>> digits().encoder.shape
        (1, 8, 8)
    """
    from sklearn.datasets import load_digits

    found = load_digits(as_frame=True)
    pixels = tuple(Numeric(name, 0.0, float(_GREY_LEVELS)) for name in found.data.columns)
    frame = found.data.assign(digit=found.target)
    return Table("digits", frame, "digit", Classification, Encoder(pixels, (1, 8, 8)))
