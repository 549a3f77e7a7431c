"""Many threads and forks: predictions and fits are those of one thread, bit for bit."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

import bayesdiv as bd
from bayesdiv.app import training as trainings
from bayesdiv.app.data.loading import load
from bayesdiv.app.experiment import Training
from bayesdiv.compute.noise import seeded

QUICK = Training(epochs=1, test_samples=8, members=2, samples=1)


@pytest.fixture(scope="module")
def runs():
    """Two experiments of different seeds on the same rows."""
    splits = load("diabetes")
    both = [Training(**{**vars(QUICK), "seed": seed}) for seed in (0, 1)]
    return splits.test.x, [trainings.train(splits, bd.JSA(0.3), each)[0] for each in both]


def in_threads(count, work):
    """What each of so many threads returns, all started at once."""
    start = threading.Barrier(count)

    def one(k):
        start.wait()
        return work(k)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_fifty_threads_predict_what_one_does(runs):
    x, experiments = runs
    wanted = [each.predict(x).mean for each in experiments]

    def work(k):
        found = []
        for _ in range(10):
            torch.manual_seed(k)  # what others do to torch's generator does not matter
            found.append(experiments[k % 2].predict(x).mean)
        return found

    for k, found in enumerate(in_threads(50, work)):
        assert all(torch.equal(one, wanted[k % 2]) for one in found)


def fitted(seed):
    with seeded(seed):
        net = bd.bayesianize(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)), bd.FanIn())
    objective = bd.Objective(bd.Gaussian(), bd.JSA(0.3), num_data=40, samples=2)
    optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()], lr=0.01)
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(seed))
    for _ in bd.fit(net, objective, bd.Batches(x, x[:, 0], 10, seed), optimizer, 3, seed=seed):
        pass
    return torch.cat([net.posterior.loc, net.posterior.rho]).detach()


def estimated(seed):
    random = np.random.default_rng(seed)
    x = random.normal(size=(40, 2))
    model = bd.BayesianRegressor(epochs=2, members=2, validation_fraction=0.2, random_state=seed)
    return torch.from_numpy(model.fit(x, x[:, 0]).predict(x))


def written(seed):
    splits, training = load("diabetes"), Training(**{**vars(QUICK), "seed": seed})
    return trainings.train(splits, bd.JSG(0.1), training)[0].predict(splits.test.x).mean


@pytest.mark.parametrize("fit", [fitted, estimated, written])
def test_eight_fits_at_once_are_those_one_after_the_other(fit):
    wanted = [fit(seed) for seed in range(8)]
    found = in_threads(8, fit)
    assert all(torch.equal(one, two) for one, two in zip(found, wanted, strict=True))


def test_a_fit_with_a_seed_leaves_predictions_of_others_alone(runs):
    x, experiments = runs
    wanted = experiments[0].predict(x).mean
    both = in_threads(2, lambda k: experiments[0].predict(x).mean if k else fitted(3))
    assert torch.equal(both[1], wanted)
    assert torch.equal(both[0], fitted(3))


def test_a_prediction_with_a_seed_leaves_the_generator_of_torch_alone(runs):
    x, experiments = runs
    before = torch.get_rng_state()
    experiments[0].predict(x)
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_and_weights_are_not_made_from_the_same_words():
    seen = []

    def noting(loss_of, batch, optimizer, backward):
        seen.append((torch.initial_seed(), torch.rand(4)))
        return bd.Eager()(loss_of, batch, optimizer, backward)

    net = bd.bayesianize(nn.Linear(1, 1), bd.FanIn())
    objective = bd.Objective(bd.Gaussian(), bd.KL(), num_data=4)
    optimizer = torch.optim.SGD([*net.parameters(), *objective.parameters()], lr=0.0)
    batches = bd.Batches(torch.ones(4, 1), torch.ones(4), 4)
    for _ in range(2):
        list(bd.fit(net, objective, batches, optimizer, 1, seed=5, step=noting))
    assert seen[0][0] == seen[1][0]
    assert torch.equal(seen[0][1], seen[1][1])
    assert seen[0][0] != 5 * 1_000_003


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_fork_while_another_thread_predicts_can_predict_too(runs):
    x, experiments = runs
    wanted, stop = experiments[0].predict(x).mean, threading.Event()

    def busy():
        while not stop.is_set():
            experiments[0].predict(x)

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(5):
            time.sleep(0.01)
            child = os.fork()
            if child == 0:
                signal.alarm(30)  # a child that hangs is killed
                same = torch.equal(experiments[0].predict(x).mean, wanted)
                os._exit(0 if same else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        thread.join()
