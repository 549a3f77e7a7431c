# %% [markdown]
# # Bayesian LoRA
#
# Low-rank adapters change a large frozen network with few weights. Few weights and few labels are where a posterior is cheap and useful: make
# the adapters random, and leave the rest alone.
# %%
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import bayesdiv as bd

digits = load_digits()
upright = torch.tensor(digits.images, dtype=torch.float32) / 16
turned = torch.rot90(upright, dims=(1, 2))
y = torch.tensor(digits.target)

figure, panels = plt.subplots(2, 8, figsize=(7, 2))
for column, pair in enumerate(panels.T):
    for axes, images in zip(pair, (upright, turned)):
        axes.imshow(images[column].numpy(), cmap="gray_r")
        axes.set_axis_off()


# What the network was trained on, above, and what it now has to read, below
# %% [markdown]
# ## A small transformer
#
# It reads a picture as eight tokens, one per row, and was trained on upright digits.
# %%
class Block(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (
            nn.Linear(width, width) for _ in range(4)
        )
        self.wide, self.narrow = (
            nn.Linear(width, 2 * width),
            nn.Linear(2 * width, width),
        )

    def forward(self, x):
        n = self.before(x)
        seen = F.scaled_dot_product_attention(
            self.query(n), self.key(n), self.value(n)
        )
        x = x + self.out(seen)
        return x + self.narrow(F.gelu(self.wide(self.after(x))))


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(8, 32), nn.Linear(32, 10)
        self.place = nn.Parameter(0.1 * torch.randn(8, 32))
        self.blocks = nn.Sequential(Block(), Block())

    def forward(self, x):
        return self.head(self.blocks(self.embed(x) + self.place).mean(1))


def train(net, objective, x, y, rate, epochs, size):
    optimizer = torch.optim.Adam(
        [p for p in net.parameters() if p.requires_grad], lr=rate
    )
    batches = bd.Batches(x, y, size=size)
    for _ in bd.fit(net, objective, batches, optimizer, epochs, seed=0):
        pass
    return net


torch.manual_seed(0)
reader = train(
    Reader(), bd.Objective(bd.Classes(), num_data=len(y)), upright, y, 3e-3, 15, 100
)
with torch.no_grad():
    for name, images in (("upright", upright), ("turned", turned)):
        print(
            f"{name:8} accuracy {(reader(images).argmax(-1) == y).float().mean():.3f}"
        )


# %% [markdown]
# ## Adapters
#
# An adapter adds a product of two thin matrices to a frozen linear layer. Its second matrix starts at zero, so that nothing changes at first. (`peft` does this for
# networks of transformers: [how-to](../howto/lora.md).)
# %%
class Adapter(nn.Module):
    def __init__(self, linear, rank=4):
        super().__init__()
        self.linear = linear
        self.down = nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.linear(x) + self.up(self.down(x))


def with_adapters():
    torch.manual_seed(0)
    net = Reader()
    net.load_state_dict(reader.state_dict())
    net.requires_grad_(False)
    net.embed = Adapter(net.embed)
    for block in net.blocks:
        for name in ("query", "value", "wide", "narrow"):
            setattr(block, name, Adapter(getattr(block, name)))
    return net


few, rest = slice(0, 200), slice(200, None)
misfit = bd.Objective(bd.Classes(), num_data=200)
plain = train(with_adapters(), misfit, turned[few], y[few], 5e-3, 100, 50)

adapters = bd.bayesianize(with_adapters(), bd.AroundStart(scale=0.1))
objective = bd.Objective(
    bd.Classes(), bd.JSA(0.3), num_data=200, strength=0.3, samples=2
)
train(adapters, objective, turned[few], y[few], 5e-3, 100, 50)
frozen = sum(p.numel() for p in reader.parameters())
print(f"{adapters.layout.size} random weights beside {frozen} frozen ones")
# %%
for name, net, samples in (
    ("plain adapter", plain, 1),
    ("Bayesian adapter", adapters, 50),
):
    predictive = bd.predict(net, bd.Classes(), turned[rest], samples=samples)
    print(
        f"{name:17} accuracy {bd.metrics.accuracy(predictive, y[rest]):.3f}, "
        f"NLL {bd.metrics.nll(predictive, y[rest]):.2f}, "
        f"ECE {bd.metrics.ece(predictive, y[rest]):.3f}"
    )
# %% [markdown]
# ## Back to an ordinary network
#
# `plain` puts the posterior mean in place. What comes out is a module of the original class, ready to be merged, saved or served.
# %%
ordinary = bd.plain(adapters)
with torch.no_grad():
    right = ordinary(turned[rest]).argmax(-1) == y[rest]
print(type(ordinary).__name__, f"accuracy {right.float().mean():.3f}")
# %% [markdown]
# ## Take away
#
# - What requires gradients becomes random, what is frozen stays: adapters need no option of their own.
# - `AroundStart` centres the prior on the weights the adapters start from, that is, on the network you already trust.
# - On real text, with `peft` and five seeds: [Bayesian LoRA, the how-to](../howto/lora.md).
