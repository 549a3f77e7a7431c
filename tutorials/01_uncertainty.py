# %% [markdown]
# # Uncertainty in ten minutes
#
# An ordinary network gives one number for every input, even where it has never seen anything like it. A Bayesian network gives a
# distribution. This page trains both on the same points and shows what the difference is worth.
# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

import bayesdiv as bd

torch.manual_seed(0)
x = torch.rand(120, 1) * 4 - 2
y = (1.6 * x[:, 0]).sin() + 0.2 * torch.randn(120)
wide = torch.linspace(-5, 5, 200)[:, None]


# %% [markdown]
# ## A network, and the same network Bayesian
#
# `bayesianize` takes any module. Every weight becomes a bell curve; `FanIn` gives each layer a prior of a suitable width.
# %%
def network():
    return nn.Sequential(nn.Linear(1, 50), nn.ReLU(), nn.Linear(50, 1))


def train(model, objective):
    parameters = [*model.parameters(), *objective.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    batches = bd.Batches(x, y, size=40)
    for epoch in bd.fit(model, objective, batches, optimizer, epochs=400, seed=0):
        pass
    return epoch


plain = network()
noise = bd.Objective(bd.Gaussian(), num_data=len(x))
train(plain, noise)

net = bd.bayesianize(network(), bd.FanIn(gain=2.0), posterior=bd.Ensemble(5))
objective = bd.Objective(
    bd.Gaussian(), bd.JSA(alpha=0.3), num_data=len(x), strength=0.02, samples=2
)
last = train(net, objective)
print(
    f"negative log likelihood {last.loss.nll:.2f}, divergence {last.loss.divergence:.0f} nats"
)
# %% [markdown]
# The loss has two parts: how badly the data are fitted, and how far the weights have moved from their prior. We asked for five members with
# different starts (`Ensemble(5)`): where the data say nothing, they disagree.
#
# ## Look at both
# %%
with torch.no_grad():
    line = plain(wide)[:, 0]
predictive = bd.predict(net, objective.likelihood, wide, samples=50)
low, high = predictive.interval(0.9)

figure, axes = plt.subplots()
axes.fill_between(
    wide[:, 0],
    low,
    high,
    color="C1",
    alpha=0.25,
    linewidth=0,
    label="90 % interval",
)
axes.plot(wide[:, 0], predictive.mean, color="C1", label="Bayesian")
axes.plot(wide[:, 0], line, color="C0", linestyle="--", label="plain")
axes.plot(x, y, ".", color="grey", markersize=4)
axes.set(xlabel="x", ylabel="y", ylim=(-5, 5))
axes.legend(loc="upper right")
# The plain line and the Bayesian band: the band widens away from the points
# %% [markdown]
# ## Two kinds of not knowing
#
# The width of the band has two causes. *Aleatoric*: the points are noisy, and more of them would not help. *Epistemic*: there are no points
# here, and more of them would.
# %%
for place in (0.0, 3.5):
    at = bd.predict(net, objective.likelihood, torch.tensor([[place]]), samples=200)
    print(
        f"x = {place}: aleatoric {at.aleatoric.sqrt().item():.2f}, "
        f"epistemic {at.epistemic.sqrt().item():.2f}"
    )
# %% [markdown]
# ## Take away
#
# - Three objects: a network made Bayesian, an objective that knows the likelihood and the divergence, and a `Predictive` that answers with means, intervals and
#   both kinds of uncertainty.
# - On the points the band is as wide as their noise, whose true standard deviation is 0.2. Away from them the epistemic part takes over.
# - Next: [your own table](02_table.md), or [your own network](03_network.md).
