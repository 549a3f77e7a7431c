# %% [markdown]
# # The last layer of a pretrained network
#
# You have a trained network, a new task and a handful of labels. Freezing the network and making only its last layer Bayesian costs seconds, and shows
# which of its answers are guesses.
# %%
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

import bayesdiv as bd

digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
y = torch.tensor(digits.target)
old, new = y < 5, y >= 5
# %% [markdown]
# ## A network that was trained elsewhere
#
# It stands for the large one you would download. Ours has learned to tell 0, 1, 2, 3 and 4 apart, and has never seen a larger digit.
# %%
torch.manual_seed(0)
trunk = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(512, 48),
    nn.ReLU(),
)
pretrained = nn.Sequential(trunk, nn.Linear(48, 5))
optimizer = torch.optim.Adam(pretrained.parameters(), lr=3e-3)
elsewhere = bd.Objective(bd.Classes(), num_data=int(old.sum()))
batches = bd.Batches(x[old], y[old], size=100)
for epoch in bd.fit(pretrained, elsewhere, batches, optimizer, epochs=10, seed=0):
    pass
print(f"loss on the old digits {epoch.loss.nll:.3f}")
# %% [markdown]
# ## Five new classes, ten labels each
#
# The new task is 5, 6, 7, 8 and 9, with fifty labelled images in all. The frozen trunk computes the features.
# %%
index = new.nonzero()[:, 0]
target = y[index] - 5
few = torch.cat([index[target == label][:10] for label in range(5)])
rest = index[~torch.isin(index, few)]

figure, panels = plt.subplots(5, 10, figsize=(6, 3))
for axes, row in zip(panels.flatten(), few):
    axes.imshow(x[row, 0].numpy(), cmap="gray_r")
    axes.set_axis_off()


# All fifty labelled images, a row per class
# %%
def adapted(divergence):
    torch.manual_seed(0)
    trunk.requires_grad_(False)
    module = nn.Sequential(trunk, nn.Linear(48, 5))
    net = (
        module if divergence is None else bd.bayesianize(module, bd.FanIn(gain=3.0))
    )
    objective = bd.Objective(
        bd.Classes(),
        divergence,
        num_data=50,
        samples=1 if divergence is None else 8,
    )
    optimizer = torch.optim.Adam(
        [p for p in net.parameters() if p.requires_grad], lr=2e-2
    )
    batches = bd.Batches(x[few], y[few] - 5, size=50)
    for _ in bd.fit(net, objective, batches, optimizer, epochs=300, seed=0):
        pass
    return net


ways = {
    "plain": adapted(None),
    "JS-A": adapted(bd.JSA(0.3)),
    "KL": adapted(bd.KL()),
}
print(ways["KL"])
# %% [markdown]
# Weights that do not require gradients stay as they are, so freezing the trunk is all that `bayesianize` needs.
#
# ## Guesses that look like guesses
# %%
found = {}
for name, net in ways.items():
    predictive = bd.predict(
        net, bd.Classes(), x[rest], samples=1 if name == "plain" else 100
    )
    found[name] = predictive
    truth = y[rest] - 5
    wrong = predictive.mean.argmax(-1) != truth
    sure = predictive.mean.max(-1).values
    print(
        f"{name:5} accuracy {1 - wrong.float().mean():.3f}, "
        f"NLL {bd.metrics.nll(predictive, truth):.2f}, "
        f"ECE {bd.metrics.ece(predictive, truth):.3f}, sure when wrong {sure[wrong].mean():.2f}"
    )
# %%
figure, axes = plt.subplots()
for name, style in zip(("plain", "JS-A", "KL"), ("--", "-", "-.")):
    wrong = found[name].mean.argmax(-1) != y[rest] - 5
    sure = found[name].mean.max(-1).values[wrong].sort().values
    axes.plot(sure, torch.linspace(1, 0, len(sure)), style, label=name)
axes.set(xlabel="how sure", ylabel="wrong answers at least as sure")
axes.legend()
# How sure each head is of its wrong answers: the Bayesian heads lie to the left of the plain one
# %% [markdown]
# ## Take away
#
# - One line freezes the trunk, one call makes the new head Bayesian: no other layer is touched, and the trunk runs once however many draws you ask for.
# - With few labels the gain is in the probabilities more than in the accuracy. The last column is the one to look at: how sure each head is of answers that are wrong.
# - KL is the better choice here: with so few labels its firm pull is what is wanted.
# - For a network from timm or transformers the recipe is the same; [your own network](../howto/your-network.md) has the rules, and
#   [Bayesian LoRA](09_lora.md) adapts the inside of the network too.
