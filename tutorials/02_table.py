# %% [markdown]
# # Your table
#
# A scikit-learn estimator with honest intervals. The data are 442 patients and the progress of their diabetes a year later.
# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

import bayesdiv as bd

X, y = load_diabetes(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

model = bd.BayesianRegressor(random_state=0).fit(X_train, y_train)
mean, std = model.predict(X_test, return_std=True)
low, high = model.predict_interval(X_test, level=0.9)
# %% [markdown]
# ## Is it any good?
#
# Compare it with a forest, and count how often the interval holds the truth: nine times in ten is the promise.
# %%
forest = RandomForestRegressor(random_state=0).fit(X_train, y_train)


def rmse(predicted):
    return np.sqrt(np.mean((predicted - y_test) ** 2))


inside = np.mean((low <= y_test) & (y_test <= high))
print(f"RMSE: ours {rmse(mean):.1f}, forest {rmse(forest.predict(X_test)):.1f}")
print(f"inside the 90 % interval: {inside:.0%} of {len(y_test)} patients")
# %%
order = np.argsort(mean)
figure, axes = plt.subplots()
axes.fill_between(
    range(len(order)), low[order], high[order], color="C0", alpha=0.2, linewidth=0
)
axes.plot(mean[order], color="C0", label="mean and 90 % interval")
axes.plot(y_test.to_numpy()[order], ".", color="grey", label="truth")
axes.set(xlabel="patient, by predicted progress", ylabel="progress")
axes.legend()
# Predictions in order, with their intervals and the truth
# %% [markdown]
# ## Classes, and when to ask a person
#
# For classes there are probabilities. A prediction that is hardly more likely than the other class is a reason to ask a person: here the least
# certain tenth of 143 tumours is passed on to a doctor.
# %%
from sklearn.datasets import load_breast_cancer

X, y = load_breast_cancer(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
classifier = bd.BayesianClassifier(random_state=0).fit(X_train, y_train)
likely = classifier.predict_proba(X_test).max(1)
right = classifier.predict(X_test) == y_test
sure = likely > np.quantile(likely, 0.1)
print(f"right: all {right.mean():.1%}, the surest 90 % {right[sure].mean():.1%}")
# %% [markdown]
# ## Take away
#
# - `predict_interval` is the method that an ordinary regressor does not have; check how often the target lies inside before you rely on it.
# - The same from the command line: `bayesdiv train table.csv --target progress --out runs/first`, then `bayesdiv predict runs/first new.csv -o predicted.csv`.
#   If cells are missing, `--impute` fills and marks them.
# - Intervals that keep their promise by construction: [conformal predictions](07_conformal.md).
