"""Lightning and skorch beyond their pages: stopping and going on, files; export of a plain copy."""

import lightning
import numpy as np
import pytest
import torch
from skorch import NeuralNet
from torch import nn
from torch.distributions import Normal
from torch.utils.data import DataLoader, TensorDataset

import bayesdiv as bd
from clients.transformer_nets import TOKENS, made

QUIET = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


def network(posterior=bd.MeanField):
    torch.manual_seed(0)
    source = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    return bd.bayesianize(source, bd.Prior(Normal, loc=0.0, scale=1.0), posterior=posterior)


class Bayes(lightning.LightningModule):
    """Without noise, so that two runs can be compared."""

    def __init__(self):
        super().__init__()
        self.net = network(bd.Point)
        self.objective = bd.Objective(bd.Gaussian(), bd.KL(), num_data=64)

    def training_step(self, batch):
        return self.objective(self.net, *batch).total

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def test_a_run_of_lightning_goes_on_where_it_stopped(tmp_path):
    x = torch.randn(64, 4)
    loader = DataLoader(TensorDataset(x, x.sum(-1)), batch_size=16)
    whole = Bayes()
    lightning.Trainer(max_epochs=4, **QUIET).fit(whole, loader)
    stopped = lightning.Trainer(max_epochs=2, **QUIET)
    stopped.fit(Bayes(), loader)
    stopped.save_checkpoint(tmp_path / "half.ckpt")
    again = Bayes()
    lightning.Trainer(max_epochs=4, **QUIET).fit(again, loader, ckpt_path=tmp_path / "half.ckpt")
    torch.testing.assert_close(again.net.loc, whole.net.loc, rtol=0.0, atol=0.0)
    assert not torch.equal(again.net.loc, Bayes().net.loc)


def test_skorch_writes_and_reads_a_bayesian_module(tmp_path):
    one, two = (
        NeuralNet(network(), criterion=nn.MSELoss, verbose=0).initialize() for _ in range(2)
    )
    with torch.no_grad():
        one.module_.posterior.loc.add_(1.0)
    one.save_params(f_params=tmp_path / "net.pt")
    two.load_params(f_params=tmp_path / "net.pt")
    x = np.ones((3, 4), dtype=np.float32)
    with bd.at_mean(one.module_), bd.at_mean(two.module_):
        np.testing.assert_array_equal(one.predict(x), two.predict(x))


@pytest.mark.parametrize("name", ["BertForSequenceClassification", "LlamaForCausalLM"])
def test_a_plain_copy_is_exported_by_torch(name):
    settings = {"num_key_value_heads": 1, "head_dim": 8, "use_cache": False}
    net = bd.bayesianize(made(name, settings), bd.FanIn()).eval()
    copy = bd.plain(net).eval()
    ids = {"input_ids": torch.randint(5, TOKENS, (4, 6))}
    program = torch.export.export(copy, (), ids)
    with torch.no_grad(), bd.at_mean(net):
        wanted = net(**ids).logits
    torch.testing.assert_close(program.module()(**ids).logits, wanted)
