# %% [markdown]
# # Intervals that keep their promise
#
# A network's own 90 % interval is an opinion. Held-out rows turn it into a promise: *conformal* prediction widens or narrows all intervals by one
# factor, after which at least 90 % of new rows lie inside on average, for any model, as long as new rows are like the held-out ones.
# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

import bayesdiv as bd
from bayesdiv import calibration

torch.manual_seed(0)


def rows(count):
    x = torch.rand(count, 1) * 4 - 2
    return x, x[:, 0] ** 2 + 0.3 * torch.distributions.StudentT(3.0).sample(
        (count,)
    )


(x, y), (x_held, y_held), (x_new, y_new) = rows(200), rows(300), rows(2000)
net = bd.bayesianize(
    nn.Sequential(nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 1)), bd.FanIn(gain=2.0)
)
objective = bd.Objective(bd.Gaussian(), bd.KL(), num_data=200, strength=0.1)
optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()], lr=1e-2)
batches = bd.Batches(x, y, size=50)
for _ in bd.fit(net, objective, batches, optimizer, epochs=150, seed=0):
    pass


# %%
def predicted(x):
    return bd.predict(net, objective.likelihood, x, samples=50)


def share(low, high):
    return ((low <= y_new) & (y_new <= high)).float().mean().item()


before = predicted(x_new).interval(0.9)
conformal = calibration.Intervals.fit(predicted(x_held), y_held, level=0.9)
after = conformal(predicted(x_new))
for name, (low, high) in {"the network's own": before, "conformal": after}.items():
    print(
        f"{name:18} inside {share(low, high):.1%}, mean width {(high - low).mean():.2f}"
    )
# %%
order = x_new[:, 0].argsort()
figure, axes = plt.subplots()
axes.plot(x_new[:300, 0], y_new[:300], ".", color="grey", markersize=3)
for name, (low, high), style in (
    ("the network's own", before, "--"),
    ("conformal", after, "-"),
):
    (line,) = axes.plot(x_new[order, 0], low[order], style, label=name)
    axes.plot(x_new[order, 0], high[order], style, color=line.get_color())
axes.set(xlabel="x", ylabel="y", ylim=(-3, 6))
axes.legend(loc="upper center")
# The ends of both kinds of 90 % intervals over new rows
# %% [markdown]
# ## Classes: one temperature
#
# For classes the simplest repair is one number. A *temperature* above 1 makes all probabilities less extreme, one below 1 more; held-out rows choose it.
# %%
from sklearn.datasets import load_digits

digits = load_digits()
pixels = torch.tensor(digits.data, dtype=torch.float32) / 16
pixels = pixels + 0.5 * torch.randn_like(pixels)
label = torch.tensor(digits.target)
mixed = torch.randperm(len(label))
train, held, test = mixed[:600], mixed[600:1000], mixed[1000:]

plain = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
optimizer = torch.optim.Adam(plain.parameters(), lr=3e-3)
batches = bd.Batches(pixels[train], label[train], size=50)
objective_of_classes = bd.Objective(bd.Classes(), num_data=600)
for _ in bd.fit(plain, objective_of_classes, batches, optimizer, epochs=30, seed=0):
    pass

raw_held = bd.predict(plain, bd.Classes(), pixels[held], samples=1)
raw_test = bd.predict(plain, bd.Classes(), pixels[test], samples=1)
temperature = calibration.Temperature.fit(raw_held, label[held])
print(f"temperature {temperature.value:.2f}")
for name, predictive in (("before", raw_test), ("after", temperature(raw_test))):
    nll = bd.metrics.nll(predictive, label[test])
    ece = bd.metrics.ece(predictive, label[test])
    print(f"{name:7} NLL {nll:.2f}, ECE {ece:.3f}")
# %% [markdown]
# ## Take away
#
# - A conformal interval keeps its promise on average over all rows together, not for each kind of row.
# - A temperature promises nothing, but repairs the whole prediction. It works for plain networks too, as here.
# - Both need held-out rows that took no part in training. Sets of classes and promises per group:
#   [predictions that keep a promise](../howto/calibration.md).
