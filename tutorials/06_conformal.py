# %% [markdown]
# # Intervals that keep their promise
#
# A network's own 90 % interval is an opinion. Held-out rows turn it into a promise: *conformal* prediction widens or narrows all intervals by one
# factor, after which at least 90 % of new rows lie inside on average, for any model, as long as new rows are like the held-out ones.
# %%
import torch
from torch import nn

import bayesdiv as bd
from bayesdiv import calibration

torch.manual_seed(0)


def rows(count):
    x = torch.rand(count, 1) * 4 - 2
    return x, x[:, 0] ** 2 + 0.3 * torch.distributions.StudentT(3.0).sample((count,))


(x, y), (x_held, y_held), (x_new, y_new) = rows(200), rows(300), rows(2000)
net = bd.bayesianize(nn.Sequential(nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 1)), bd.FanIn(gain=2.0))
objective = bd.Objective(bd.Gaussian(), bd.KL(), num_data=200, strength=0.1)
optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()], lr=1e-2)
for _ in bd.fit(net, objective, bd.Batches(x, y, size=50), optimizer, epochs=150, seed=0):
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
    print(f"{name:18} inside {share(low, high):.1%}, mean width {(high - low).mean():.2f}")
# %% [markdown]
# The promise is *marginal*: over all rows together, not for each kind of row. `bayesdiv.calibration` also has sets of classes, groups, and a
# temperature; [predictions that keep a promise](../howto/calibration.md) states what each of them guarantees.
