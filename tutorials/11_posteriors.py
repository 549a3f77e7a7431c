# %% [markdown]
# # Posteriors compared
#
# What the posterior can express decides what it can be unsure about. Two clusters of points and a gap: a Gaussian process is unsure in between.
# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

import bayesdiv as bd

torch.manual_seed(0)
x = torch.cat([torch.rand(30, 1) - 2, torch.rand(30, 1) + 1])
y = (1.6 * x[:, 0]).sin() + 0.1 * torch.randn(60)
wide = torch.linspace(-4, 4, 150)[:, None]
posteriors = {
    "mean-field": bd.MeanField,
    "low rank": bd.LowRank(rank=3),
    "ensemble": bd.Ensemble(5),
}
# %%
figure, panels = plt.subplots(1, 3, figsize=(9, 2.8), sharey=True)
for (name, posterior), axes in zip(posteriors.items(), panels):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1))
    net = bd.bayesianize(module, bd.FanIn(gain=2.0), posterior=posterior)
    objective = bd.Objective(
        bd.Gaussian(), bd.KL(), num_data=60, strength=0.1, samples=4
    )
    optimizer = torch.optim.Adam(
        [*net.parameters(), *objective.parameters()], lr=1e-2
    )
    batches = bd.Batches(x, y, size=60)
    for _ in bd.fit(net, objective, batches, optimizer, epochs=600, seed=0):
        pass
    predictive = bd.predict(net, objective.likelihood, wide, samples=100)
    scale = predictive.epistemic.sqrt()
    ends = predictive.mean - 2 * scale, predictive.mean + 2 * scale
    axes.fill_between(wide[:, 0], *ends, alpha=0.3, linewidth=0)
    axes.plot(wide[:, 0], predictive.mean)
    axes.plot(x, y, ".", color="grey", markersize=3)
    axes.set(title=name, ylim=(-3, 3), xlabel="x")
    far = wide[:, 0].abs()
    gap, data = scale[far < 0.5].mean(), scale[(far - 1.5).abs() < 0.5].mean()
    print(f"{name:11} epistemic std: in the gap {gap:.2f}, on the data {data:.2f}")
# The same data under three posteriors, two epistemic standard deviations
# %% [markdown]
# ## Take away
#
# All three are less sure in the gap than on the data, and none as much as a Gaussian process would be. How much depends on the strength and on the
# prior as well as on the posterior: set `strength=1`, and the bands on the data widen until the contrast is gone. `FullRank()` keeps the square
# of the number of weights and needs longer training; it is exact for linear models. The default of the
# [estimators for tables](../howto/scikit-learn.md) was chosen with this figure in mind.
