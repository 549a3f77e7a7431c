# %% [markdown]
# # Choosing α and λ
#
# A divergence has a skew α, an objective a strength λ. Both are chosen on validation data. The table is small, so twenty settings take seconds.
# %%
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn

import bayesdiv as bd

X, y = load_wine(return_X_y=True)
X, X_val, y, y_val = train_test_split(X, y, test_size=0.5, random_state=0)
scaler = StandardScaler().fit(X)
x, x_val = (
    torch.tensor(scaler.transform(part), dtype=torch.float32) for part in (X, X_val)
)
y, y_val = torch.tensor(y), torch.tensor(y_val)


def validation_nll(divergence, strength):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(13, 30), nn.ReLU(), nn.Linear(30, 3))
    net = bd.bayesianize(module, bd.FanIn(gain=1.4))
    objective = bd.Objective(
        bd.Classes(), divergence, num_data=len(x), strength=strength
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in bd.fit(
        net, objective, bd.Batches(x, y, size=len(x)), optimizer, epochs=200, seed=0
    ):
        pass
    predictive = bd.predict(net, objective.likelihood, x_val, samples=50)
    return -predictive.log_prob(y_val).mean().item()


# %%
strengths = [0.01, 0.03, 0.1, 0.3, 1.0]
divergences = {
    "KL": bd.KL(),
    "JS-G, α = 0.1": bd.JSG(0.1),
    "JS-A, α = 0.1": bd.JSA(0.1),
    "JS-A, α = 0.5": bd.JSA(0.5),
}
found = {
    name: [validation_nll(d, s) for s in strengths]
    for name, d in divergences.items()
}

figure, axes = plt.subplots()
for (name, values), style in zip(found.items(), ("-", "--", "-.", ":")):
    axes.semilogx(strengths, values, style, marker="o", label=name)
axes.set(xlabel="strength λ", ylabel="validation NLL (nats)")
axes.legend()
# Validation NLL over the strength, a line per divergence
# %%
for name, values in found.items():
    best = min(values)
    print(f"{name:14} best λ {strengths[values.index(best)]:<5} NLL {best:.3f}")
# %% [markdown]
# ## Take away
#
# Read the figure sideways: the curves have the same shape and are shifted relative to each other, because near the prior JS-A with α = ½ pulls with
# a quarter of KL's force. Tuned, they end close together. At λ = 1 they do not, and that is how most comparisons are made.
#
# On your own data `bayesdiv tune table.csv --target y --divergence JSA` searches λ, the learning rate and the width of the prior, and averages the
# best settings; `--alpha_range 0.1 0.6` adds α.
# [Which α, which λ, and when to use KL](../concepts/choosing.md) has the reasons.
