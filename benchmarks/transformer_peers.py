"""What other libraries do with a network of transformers: as it comes, checkpointed, bf16, LoRA.

    bash benchmarks/transformer_peers.sh        # environment, this script, the committed files

Every library gets the same tiny BERT from a random start, the same 64 rows and 60 updates or its
own fit, used as its documentation uses it. A case counts as done if the loss falls, four draws
predict differently, and what the case is about did happen: layers were recomputed, outputs were
bfloat16, frozen weights stayed, the merged model predicts what the mean predicts. Anything else is
reported by the sentence of its error.
"""

import argparse
import copy
import json
import math
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForSequenceClassification

ROWS, STEPS, DRAWS = 64, 60, 4
CASES = {
    "plain": "the network as it comes, a batch as a mapping",
    "checkpointing": "gradient checkpointing",
    "bfloat16": "bfloat16 autocast",
    "LoRA": "LoRA: the adapters alone random",
    "merge": "the adapters merged back into a plain checkpoint",
}
BESIDE = ("torch", "transformers", "peft")
Batch = dict[str, Tensor]


class Unmet(Exception):
    """What the case asks for did not happen."""


class Task:
    """One network, one batch, and what was seen while a library worked on them."""

    def __init__(self, case: str) -> None:
        torch.manual_seed(0)
        self.case = case
        sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
        config = BertConfig(
            vocab_size=50,
            intermediate_size=32,
            num_labels=2,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            **sizes,
        )
        model = BertForSequenceClassification(config).train()
        self.calls = 0
        model.bert.encoder.layer[0].intermediate.register_forward_hook(self._count)
        if case == "checkpointing":
            model.gradient_checkpointing_enable({"use_reentrant": False})
            model.disable_input_require_grads()  # a hook that only reentrant checkpoints need
        if case in ("LoRA", "merge"):
            targets = ["query", "value", "dense"]
            nn.init.normal_(model.classifier.weight)  # frozen: large enough to be heard
            model = get_peft_model(model, LoraConfig(r=8, target_modules=targets))
        self.model: nn.Module = model
        self.frozen = {n: p.clone() for n, p in model.named_parameters() if not p.requires_grad}
        tokens = torch.randint(3, 50, (ROWS, 8))
        self.inputs: Batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        self.labels = (tokens[:, 0] > 26).long()

    def _count(self, *_: object) -> None:
        self.calls += 1

    def __deepcopy__(self, memo: dict) -> "Task":
        return self  # a copy of the network still counts here

    def precision(self):
        """The context to run the network in."""
        bf16 = self.case == "bfloat16"
        return torch.autocast("cpu", torch.bfloat16) if bf16 else nullcontext()

    def nll(self, logits: Tensor) -> Tensor:
        """The loss of outputs, which must have the precision that the case asks for."""
        if self.case == "bfloat16" and logits.dtype != torch.bfloat16:
            raise Unmet(f"outputs are {logits.dtype} under autocast")
        return cross_entropy(logits.float(), self.labels)

    def check(self, before: float, after: float, draws: Tensor, steps: int = STEPS) -> str:
        """What was measured, or an error."""
        if not after < before - 0.02:
            raise Unmet(f"the loss went from {before:.3f} to {after:.3f}")
        if not draws.std(0).max().item() > 1e-4:
            raise Unmet("all draws predict the same")
        if self.case == "checkpointing" and self.calls < 1.8 * steps:
            raise Unmet(f"no layer was recomputed: {self.calls} calls in {steps} updates")
        return f"loss {before:.2f} to {after:.2f}"


def ours(task: Task) -> str:
    from torch.distributions import Normal

    import bayesdiv as bd

    net = bd.bayesianize(task.model, bd.Prior(Normal, loc=0.0, scale=0.1))
    objective = bd.Objective(bd.Classes(), bd.KL(), num_data=ROWS, strength=0.01)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        with task.precision():
            loss = objective(net, task.inputs, task.labels)
        loss.total.backward()
        optimizer.step()
        losses.append(loss.nll.item())
    seen = task.calls
    with torch.no_grad(), task.precision():
        draws = bd.draws(net, task.inputs, bd.draw_weights(net, DRAWS))
    task.nll(draws[0])
    task.calls = seen
    measured = task.check(losses[0], losses[-1], draws)
    if task.case == "merge":
        with bd.at_mean(net):
            mean = net(**task.inputs).logits
        _check_merge(bd.plain(net), mean, task)
    _check_frozen(dict(net.module.named_parameters()), task)
    return measured


def bayesian_torch(task: Task) -> str:
    from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss

    settings = {
        "prior_mu": 0.0,
        "prior_sigma": 0.1,
        "posterior_mu_init": 0.0,
        "posterior_rho_init": -4.0,
        "type": "Reparameterization",
        "moped_enable": True,
        "moped_delta": 0.1,
    }
    model = task.model
    if task.case in ("LoRA", "merge"):  # it has no choice of layers: each adapter by itself
        for part in list(model.modules()):
            if hasattr(part, "lora_A"):
                dnn_to_bnn(part.lora_A, settings)
                dnn_to_bnn(part.lora_B, settings)
    else:
        dnn_to_bnn(model, settings)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        with task.precision():
            nll = task.nll(model(**task.inputs).logits)
        (nll + 0.01 * get_kl_loss(model) / ROWS).backward()
        optimizer.step()
        losses.append(nll.item())
    seen = task.calls
    with torch.no_grad(), task.precision():
        draws = torch.stack([model(**task.inputs).logits.float() for _ in range(DRAWS)])
    task.calls = seen
    measured = task.check(losses[0], losses[-1], draws)
    _check_frozen(dict(model.named_parameters()), task)
    if task.case == "merge":
        _check_merge(model, draws.mean(0), task)
    return measured


def posteriors(task: Task) -> str:
    import posteriors as po
    import torchopt
    from torch.func import functional_call

    model = task.model
    chosen = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}

    def log_posterior(params, batch):
        with task.precision():
            logits = functional_call(model, params, (), batch).logits
        nll = task.nll(logits)
        prior = po.diag_normal_log_prob(params, sd_diag=0.1)
        return -nll + 0.01 * prior / ROWS, nll

    transform = po.vi.diag.build(
        log_posterior, torchopt.adam(lr=1e-2), temperature=0.01 / ROWS, init_log_sds=math.log(0.01)
    )
    state = transform.init(chosen)
    losses = []
    for _ in range(STEPS):
        state, nll = transform.update(state, task.inputs)
        losses.append(float(torch.as_tensor(nll).mean()))
    seen = task.calls
    with torch.no_grad():
        draws = torch.stack(
            [
                functional_call(model, po.vi.diag.sample(state), (), task.inputs).logits
                for _ in range(DRAWS)
            ]
        )
    task.calls = seen
    measured = task.check(losses[0], losses[-1], draws)
    _check_frozen(dict(model.named_parameters()), task)
    if task.case == "merge":
        mean = functional_call(model, dict(state.params), (), task.inputs).logits
        model.load_state_dict(dict(state.params), strict=False)
        _check_merge(model, mean, task)
    return measured


class Taken(nn.Module):
    """A network that takes a mapping and returns a tensor, as laplace-torch asks."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Tensor:
        """The logits of a batch that may hold labels too."""
        return self.model(**{k: v for k, v in batch.items() if k != "labels"}).logits


def laplace(task: Task) -> str:
    from laplace import Laplace
    from laplace.curvature import AsdlEF, AsdlGGN, CurvlinopsGGN
    from torch.utils.data import DataLoader

    optimizer = torch.optim.Adam([p for p in task.model.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        with task.precision():
            nll = task.nll(task.model(**task.inputs).logits)
        nll.backward()
        optimizer.step()
        losses.append(nll.item())
    seen = task.calls
    rows = [
        {**{k: v[i] for k, v in task.inputs.items()}, "labels": task.labels[i]} for i in range(ROWS)
    ]
    loader = DataLoader(rows, batch_size=16, collate_fn=_mapping)

    def approximated(backend: type) -> Tensor:
        made = Laplace(
            task.model if task.case == "plain" else Taken(task.model),
            "classification",
            subset_of_weights="all",
            hessian_structure="diag",
            prior_precision=100.0,
            backend=backend,
        )
        with task.precision():
            made.fit(loader)
            return made.predictive_samples(_mapping(rows), pred_type="nn", n_samples=DRAWS)

    draws = _first_of(approximated, (CurvlinopsGGN, AsdlGGN, AsdlEF))
    task.calls = seen
    measured = task.check(losses[0], losses[-1], draws.float().log())
    _check_frozen(dict(task.model.named_parameters()), task)
    if task.case == "merge":
        mean = task.model(**task.inputs).logits.detach()
        _check_merge(task.model, mean, task)
    return measured


def _first_of(attempt: Callable[[type], Tensor], ways: tuple[type, ...]) -> Tensor:
    """What the first of several ways gives that works; the error of the first if none does."""
    errors = []
    for way in ways:
        try:
            return attempt(way)
        except Exception as error:
            errors.append(error)
    raise errors[0]


def _mapping(rows: list[Batch]) -> Batch:
    return {key: torch.stack([row[key] for row in rows]) for key in rows[0]}


def _check_frozen(now: dict[str, Tensor], task: Task) -> None:
    for name, before in task.frozen.items():
        if name not in now or not torch.equal(now[name], before):
            raise Unmet(f"the frozen weight {name} was changed or replaced")


def _check_merge(model: nn.Module, wanted: Tensor, task: Task) -> None:
    merged = copy.copy(model).merge_and_unload()
    if any("lora" in name for name in merged.state_dict()):
        raise Unmet("the merged checkpoint still has adapters")
    apart = (merged(**task.inputs).logits - wanted).abs().max().item()
    if apart > 1e-4:
        raise Unmet(f"the merged model is {apart:.2g} from the mean")


LIBRARIES: dict[str, Callable[[Task], str]] = {
    "bayesdiv": ours,
    "bayesian-torch": bayesian_torch,
    "posteriors": posteriors,
    "laplace-torch": laplace,
}


def outcome(library: str, case: str) -> dict[str, str]:
    """Done, with what was measured, or the first sentence of the error."""
    try:
        return {"outcome": "yes", "detail": LIBRARIES[library](Task(case))}
    except Exception as error:
        said = " ".join(str(error).split())[:160]
        kind = "" if isinstance(error, Unmet) else f"{type(error).__name__}: "
        return {"outcome": "no", "detail": f"{kind}{said}"}


def table(found: dict) -> str:
    """The page's table: a row per case, a column per library, the reasons below."""
    names = list(found["versions"])
    head = [f"{name} {number}" for name, number in found["versions"].items()]
    lines = [["", *head], ["---"] * (1 + len(names))]
    reasons: list[str] = []
    for case, title in CASES.items():
        cells = []
        for name in names:
            one = found["outcomes"][name][case]
            if one["outcome"] == "no":
                reasons.append(f"{len(reasons) + 1}. {name}, {title}: `{one['detail']}`")
                cells.append(f"no ({len(reasons)})")
            else:
                cells.append("yes")
        lines.append([title, *cells])
    rows = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return rows + "\n" + "\n".join(reasons) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=None, help="JSON file to write")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    found = {
        "versions": {name: version(name) for name in LIBRARIES},
        "beside": {
            name: version(name).partition("+")[0] for name in ("torch", "transformers", "peft")
        },
        "outcomes": {name: {case: outcome(name, case) for case in CASES} for name in LIBRARIES},
    }
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
