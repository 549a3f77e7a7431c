# %% [markdown]
# # Your network: convolutions, recurrence, attention
#
# `bayesianize` does not care what a module is made of. Here it takes three networks, with one call each, and one loop trains them all.
# %%
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

import bayesdiv as bd

digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32) / 16
y = torch.tensor(digits.target)
train, test = slice(0, 1200), slice(1200, None)


# %%
class Rows(nn.Module):
    """Reads the picture row by row."""

    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 32, batch_first=True), nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class Attention(nn.Module):
    """Looks at all rows at once."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 32)
        self.place = nn.Parameter(0.1 * torch.randn(8, 32))
        self.layer = nn.TransformerEncoderLayer(
            32, 4, 64, dropout=0.0, batch_first=True
        )
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.layer(self.embed(x) + self.place).mean(1))


def convolutions():
    return nn.Sequential(
        nn.Unflatten(1, (1, 8)),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


networks = {"CNN": convolutions, "LSTM": Rows, "transformer": Attention}
# %%
found = {}
for name, make in networks.items():
    torch.manual_seed(0)
    net = bd.bayesianize(make(), bd.FanIn(gain=1.4))
    objective = bd.Objective(bd.Classes(), bd.JSA(0.3), num_data=1200, strength=0.1)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    batches = bd.Batches(x[train], y[train], size=100)
    for epoch in bd.fit(net, objective, batches, optimizer, epochs=25, seed=0):
        pass
    predictive = found[name] = bd.predict(
        net, objective.likelihood, x[test], samples=20
    )
    print(
        f"{name:12} accuracy {bd.metrics.accuracy(predictive, y[test]):.3f}, "
        f"NLL {-predictive.log_prob(y[test]).mean():.2f}"
    )
# %% [markdown]
# ## What each of them is least sure about
#
# Draws of the weights disagree most about these digits: the mutual information between prediction and weights is highest there. Wrong answers are marked.
# %%
figure, panels = plt.subplots(3, 8, figsize=(7, 3.2))
for row, (name, predictive) in zip(panels, found.items()):
    doubtful = predictive.mutual_information.topk(8).indices
    for axes, at in zip(row, doubtful):
        axes.imshow(x[test][at].numpy(), cmap="gray_r")
        said, truth = predictive.mean[at].argmax().item(), y[test][at].item()
        axes.set_title(
            f"{said}" if said == truth else f"{said}, not {truth}", fontsize=8
        )
        axes.set(xticks=[], yticks=[])
    row[0].set_ylabel(name)
# For each network the eight digits it is least sure about, with its answer
# %% [markdown]
# ## Take away
#
# - The network stays yours: one call around it, and the same loop for all.
# - `fit` and `predict` take a `DataLoader` in place of `Batches` and tensors. Batches may be tuples or dictionaries, and models may return objects with `logits`.
# - `bayesianize(module, prior, where=…)` takes a rule that picks, by name, the tensors that become random; the others are trained as before.
# - Details: [your own network](../howto/your-network.md); only the last layer: [a pretrained network](08_last_layer.md).
