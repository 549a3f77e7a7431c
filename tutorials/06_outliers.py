# %% [markdown]
# # Pictures it has never seen
#
# A network trained on the digits 0 to 7 is shown 8 and 9. It cannot be right; can it at least be unsure?
# %%
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from torch import nn

import bayesdiv as bd

digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 16
y = torch.tensor(digits.target)
known = y < 8
train = known & (torch.arange(len(y)) < 1200)
seen, new = known & ~train, ~known
# %%
torch.manual_seed(0)
module = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 8))
net = bd.bayesianize(module, bd.FanIn(gain=1.4), posterior=bd.Ensemble(5))
objective = bd.Objective(
    bd.Classes(), bd.JSA(0.3), num_data=int(train.sum()), strength=0.3
)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
batches = bd.Batches(x[train], y[train], size=120)
for _ in bd.fit(net, objective, batches, optimizer, epochs=40, seed=0):
    pass


# %% [markdown]
# Two measures of doubt: *entropy*, how spread the probabilities are, and *mutual information*, how much the draws disagree.
# %%
def doubts(rows):
    predictive = bd.predict(net, objective.likelihood, x[rows], samples=50)
    return predictive.entropy, predictive.mutual_information


here, there = doubts(seen), doubts(new)
truth = [0] * len(here[0]) + [1] * len(there[0])
for name, old, unknown in zip(("entropy", "mutual information"), here, there):
    print(f"{name:19} AUROC {roc_auc_score(truth, torch.cat([old, unknown])):.3f}")

figure, axes = plt.subplots()
axes.hist(
    here[0], bins=30, density=True, alpha=0.6, label="digits 0 to 7, not trained on"
)
axes.hist(there[0], bins=30, density=True, alpha=0.6, label="digits 8 and 9")
axes.set(xlabel="entropy (nats)", ylabel="density")
axes.legend()
# Entropies of known and unknown digits
# %% [markdown]
# ## Take away
#
# An AUROC of 1 means that the score separates the two without a mistake; 0.5 is chance. `bayesdiv.outliers` has further scores and sets a threshold with a stated
# rate of false alarms; `bayesdiv predict` adds such a column to every table.
