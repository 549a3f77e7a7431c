"""Inside the Trainer of transformers: accumulation, evaluation, resume, precision, adapters."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.distributions import Normal
from torch.nn.functional import cross_entropy
from transformers import Trainer, TrainingArguments

import bayesdiv as bd
from bayesdiv.training.labelled import Labelled
from clients.transformer_nets import CLASSES, TOKENS, made

STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
NORMAL = bd.Prior(Normal, loc=0.0, scale=0.1)


def bert(**settings):
    return made("BertForSequenceClassification", {**STILL, **settings})


def rows(count=32):
    return [
        {"input_ids": torch.randint(5, TOKENS, (6,)), "labels": place % CLASSES}
        for place in range(count)
    ]


def labelled(source, posterior=bd.MeanField, **settings):
    torch.manual_seed(1)
    net = bd.bayesianize(source, NORMAL, posterior=posterior)
    objective = bd.Objective(bd.Classes(), bd.JSA(0.3), num_data=32, **settings)
    return Labelled(net, objective, samples=4)


def trainer(module, folder, data, **settings):
    given = {
        "per_device_train_batch_size": 8,
        "num_train_epochs": 1,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "optim": "sgd",
        "use_cpu": True,
        "remove_unused_columns": False,
        "disable_tqdm": True,
        "report_to": [],
        "save_strategy": "no",
        **settings,
    }
    arguments = TrainingArguments(str(folder), **given)
    return Trainer(module, arguments, train_dataset=data, eval_dataset=data)


def test_accumulated_batches_are_one_large_batch(tmp_path):
    """Without noise two halves give the gradient of the whole, so that weights end up equal."""
    source, data, ends = bert(), rows(), []
    for size, steps in ((16, 1), (8, 2)):
        module = labelled(source, posterior=bd.Point)
        trainer(
            module,
            tmp_path,
            data,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=steps,
            max_grad_norm=0.5,
        ).train()
        ends.append(module.model.loc.detach().clone())
    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-6)
    assert not torch.equal(ends[0], bd.bayesianize(source, NORMAL).loc)


def test_an_evaluation_without_further_flags_returns_the_loss_and_metrics(tmp_path):
    source, data = bert().eval(), rows()
    module = labelled(source, posterior=bd.Point)
    made = trainer(module, tmp_path, data)
    made.compute_metrics = lambda found: {
        "right": float((found.predictions.argmax(-1) == found.label_ids).mean())
    }
    found = made.evaluate()
    ids = torch.stack([row["input_ids"] for row in data])
    labels = torch.tensor([row["labels"] for row in data])
    logits = source(input_ids=ids).logits.detach()
    assert found["eval_loss"] == pytest.approx(cross_entropy(logits, labels).item(), rel=1e-4)
    assert found["eval_right"] == pytest.approx((logits.argmax(-1) == labels).float().mean().item())


def test_a_run_that_is_resumed_ends_where_one_that_was_not_ends(tmp_path):
    source, data = bert(), rows()
    settings = {"num_train_epochs": 3, "optim": "adamw_torch", "save_strategy": "epoch"}
    whole = labelled(source)
    trainer(whole, tmp_path, data, **settings).train()
    again = labelled(source)
    checkpoint = str(tmp_path / "checkpoint-8")  # of the second epoch, four updates each
    trainer(again, tmp_path, data, **settings).train(resume_from_checkpoint=checkpoint)
    torch.testing.assert_close(again.model.loc, whole.model.loc, rtol=0.0, atol=0.0)
    torch.testing.assert_close(again.model.posterior.rho, whole.model.posterior.rho)


@pytest.mark.parametrize("samples", [1, 4])
def test_the_trainer_learns_in_bfloat16(samples, tmp_path):
    data = [{**row, "labels": int(row["input_ids"][0] > TOKENS // 2)} for row in rows(64)]
    module = labelled(bert(), samples=samples)
    first = trainer(module, tmp_path, data, bf16=True)
    before = first.evaluate()["eval_loss"]
    trainer(module, tmp_path, data, bf16=True, num_train_epochs=15, optim="adamw_torch").train()
    assert first.evaluate()["eval_loss"] < before - 0.1
    assert module.model.loc.dtype == torch.float32


@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_gives_the_same_gradients(samples, reentrant):
    data = rows(8)
    ids = torch.stack([row["input_ids"] for row in data])
    labels = torch.tensor([row["labels"] for row in data])
    found = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        source = bert().train()
        if checkpointing:
            source.gradient_checkpointing_enable({"use_reentrant": reentrant})
            source.enable_input_require_grads()
        module = labelled(source, samples=samples).train()
        torch.manual_seed(2)
        module(input_ids=ids, labels=labels)["loss"].backward()
        found.append(module.model.posterior.loc.grad)
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)


def test_an_adapter_is_learned_evaluated_merged_and_read_again(tmp_path):
    base, data = bert(), rows()
    kept = {name: weight.clone() for name, weight in base.state_dict().items()}
    adapter = get_peft_model(
        base, LoraConfig("SEQ_CLS", r=2, target_modules=["query", "value"], lora_dropout=0.0)
    )
    module = labelled(adapter)
    names = [name for entry in module.model.layout.entries for name in entry.names]
    assert all("lora_" in name or "classifier" in name for name in names)
    trained = trainer(module, tmp_path, data, optim="adamw_torch", num_train_epochs=3)
    trained.train()
    assert "eval_loss" in trained.evaluate()
    merged = bd.plain(module.model).merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    again = type(merged).from_pretrained(tmp_path / "merged").eval()
    assert again.state_dict().keys() == kept.keys()
    ids = torch.stack([row["input_ids"] for row in data])
    with torch.no_grad(), bd.at_mean(module.model.eval()):
        wanted = module.model(input_ids=ids).logits
    torch.testing.assert_close(again(input_ids=ids).logits, wanted, rtol=1e-4, atol=1e-5)
    query = "bert.encoder.layer.0.attention.self.query.weight"
    assert not torch.equal(again.state_dict()[query], kept[query])
