# %% [markdown]
# # Ask for the label that helps most
#
# Labels are expensive. *Active learning* labels the examples about which the draws of the network disagree most, in place of random ones.
# %%
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

import bayesdiv as bd

digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 16
y = torch.tensor(digits.target)
pool, test = torch.arange(0, 1200), torch.arange(1200, len(y))


def trained(chosen):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 60), nn.ReLU(), nn.Linear(60, 10))
    net = bd.bayesianize(module, bd.FanIn(gain=1.4))
    objective = bd.Objective(
        bd.Classes(), bd.JSA(0.3), num_data=len(chosen), strength=0.1
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    batches = bd.Batches(x[chosen], y[chosen], size=len(chosen))
    for _ in bd.fit(net, objective, batches, optimizer, epochs=120, seed=0):
        pass
    return net, objective.likelihood


def accuracy(net, likelihood):
    return bd.metrics.accuracy(
        bd.predict(net, likelihood, x[test], samples=20), y[test]
    ).item()


# %%
def learn(choose, rounds=8, each=20):
    chosen, scores = pool[:each], []
    for _ in range(rounds):
        net, likelihood = trained(chosen)
        scores.append(accuracy(net, likelihood))
        left = pool[~torch.isin(pool, chosen)]
        worth = choose(bd.predict(net, likelihood, x[left], samples=20))
        chosen = torch.cat([chosen, left[worth.topk(each).indices]])
    return scores


active = learn(lambda predictive: predictive.mutual_information)
random = learn(lambda predictive: torch.rand(len(predictive.entropy)))

figure, axes = plt.subplots()
labels = range(20, 180, 20)
axes.plot(labels, active, "o-", label="asked where draws disagree")
axes.plot(labels, random, "s--", label="asked at random")
axes.set(xlabel="labels", ylabel="test accuracy")
axes.legend()
# Accuracy over the number of labels, asked for and at random
# %%
print(f"with 160 labels: {active[-1]:.3f} asked for, {random[-1]:.3f} at random")
# %% [markdown]
# ## Take away
#
# One run of each is an anecdote; repeat it over seeds before you believe it. `mutual_information` is the epistemic part of the entropy: noise in
# the labels does not attract it. The same idea chooses experiments: [a model for BoTorch](../howto/botorch.md).
