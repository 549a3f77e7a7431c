# %% [markdown]
# # Export and serve
#
# A trained network becomes one file that runs without bayesdiv: inputs in, means, intervals and both kinds of uncertainty out.
# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import nn

import bayesdiv as bd

torch.manual_seed(0)
x = torch.randn(300, 4)
y = x @ torch.tensor([1.0, -2.0, 0.5, 0.0]) + 0.3 * torch.randn(300)
net = bd.bayesianize(
    nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Linear(30, 1)), bd.FanIn(gain=1.4)
)
objective = bd.Objective(bd.Gaussian(), bd.JSA(0.3), num_data=300, strength=0.1)
optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()], lr=1e-2)
batches = bd.Batches(x, y, size=60)
for _ in bd.fit(net, objective, batches, optimizer, epochs=60, seed=0):
    pass
# %%
path = Path(tempfile.mkdtemp()) / "model.pt2"
bd.export(net, objective.likelihood, x[:2], path, samples=20)
print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB")
# %% [markdown]
# Elsewhere, with torch alone:
# %%
program = torch.export.load(path).module()
outputs = program(x[:3])
for name, values in outputs.items():
    print(f"{name:13}", [round(v, 2) for v in values.flatten()[:3].tolist()])
# %%
line = torch.zeros(100, 4)
line[:, 0] = torch.linspace(-6, 6, 100)
with torch.no_grad():
    served = program(line)
figure, axes = plt.subplots()
axes.fill_between(
    line[:, 0],
    served["low"],
    served["high"],
    alpha=0.25,
    linewidth=0,
    label="90 % interval",
)
axes.plot(line[:, 0], served["mean"], label="mean")
axes.set(xlabel="first input, the others 0", ylabel="y")
axes.legend(loc="upper left")
# What the file answers along its first input
# %% [markdown]
# ## Take away
#
# - The file holds the draws, the likelihood and everything between: whoever runs it needs no bayesdiv and none of your classes.
# - `model.onnx` in place of `model.pt2` is for onnxruntime and every language that has it.
# - Smaller files, fewer draws, and a server in twenty lines: [serve](../howto/serve.md).
