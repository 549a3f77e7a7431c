"""A network of transformers as one file."""

from importlib.util import find_spec

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

import bayesdiv as bd

SUFFIXES = [".pt2", *([".onnx"] if find_spec("onnx") and find_spec("onnxruntime") else [])]


def words(rows):
    mask = (torch.rand(rows, 12) < 0.8).long()
    mask[:, 0] = 1
    return {"input_ids": torch.randint(99, (rows, 12)), "attention_mask": mask}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_bert_as_a_file_gives_what_predict_at_gives(suffix, attention, tmp_path):
    config = BertConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        num_labels=3,
        attn_implementation=attention,
    )
    network = BertForSequenceClassification(config).eval()
    net = bd.bayesianize(network, bd.FanIn(), start=0.3)
    weights, likelihood = bd.draw_weights(net, 2), bd.Classes()
    made = bd.export(net, likelihood, words(2), tmp_path / f"bert{suffix}", weights=weights)
    assert list(made.metadata["inputs"]) == ["input_ids", "attention_mask"]
    for rows in (1, 7, 64):
        given = words(rows)
        wanted = bd.predict_at(net, likelihood, given, weights)
        found = _run(made.path, given)
        assert (found - wanted.probabilities).abs().max() < 1e-4


def _run(path, given):
    if path.suffix == ".pt2":
        return torch.export.load(path).module()(*given.values())["probabilities"]
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    fed = {name: value.numpy() for name, value in given.items()}
    return torch.from_numpy(session.run(["probabilities"], fed)[0])
