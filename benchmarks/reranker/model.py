"""A cross-encoder that starts from an embedding model, and its training.

A new head on the first token has no information about relevance, and needs some hundred thousand pairs to learn that
the similarity of two texts matters. This model starts with that: it reads question and passage together, and scores
them by the cosine of their mean token vectors, as the embedding model was trained to. Training only corrects it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from rich.progress import track
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder.modules import Module, Transformer
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.reranker.examples import Ranking
from kosmos_rag.models.hub import locate
from kosmos_rag.models.packaged import MINILM

WARM_UP = 0.1
HEAD_RATE = 10
"""How much faster the head learns than the encoder, which is trained already."""


class PairHead(Module):  # type: ignore[misc]  # the library publishes no types
    """Scores a pair by the cosine of the two texts' mean token vectors, and by a linear layer that begins at zero."""

    config_keys: list[str] = ["dimensions"]  # noqa: RUF012 — the library's own way

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        self.dimensions = dimensions
        self.scale = nn.Parameter(torch.tensor(10.0))
        self.linear = nn.Linear(2 * dimensions, 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """Add `scores`, one a pair, to the features."""
        tokens, kinds = features["token_embeddings"], features["token_type_ids"]
        question, passage = (self._mean(tokens, features["attention_mask"] * (kinds == kind)) for kind in (0, 1))
        product = question * passage
        # Each product is about a dimension's share of a cosine; scaled up to what the first token's values are like.
        hints = torch.cat([product * self.dimensions**0.5, tokens[:, 0]], dim=1)
        features["scores"] = self.scale * product.sum(dim=1, keepdim=True) + self.linear(hints)
        return features

    @staticmethod
    def _mean(tokens: Tensor, mask: Tensor) -> Tensor:
        return functional.normalize((tokens * mask.unsqueeze(-1)).sum(dim=1), dim=-1)

    def save(self, output_path: str, *_args: Any, safe_serialization: bool = True, **_kwargs: Any) -> None:
        """Write weights and shape into a folder."""
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **_kwargs: Any) -> Self:
        """Read what `save` wrote."""
        head = cls(**cls.load_config(model_name_or_path, subfolder=subfolder))
        loaded: Self = cls.load_torch_weights(model_name_or_path, subfolder=subfolder, model=head)
        return loaded


def build() -> CrossEncoder:
    """Return an untrained model from the packaged MiniLM."""
    encoder = Transformer(
        locate(MINILM),
        config_kwargs={"num_labels": 1, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    )
    embeddings = encoder.auto_model.embeddings
    with torch.no_grad():
        # The embedding model never saw a second text: its passages must look like its questions.
        embeddings.token_type_embeddings.weight[1] = embeddings.token_type_embeddings.weight[0]
    # Words are kept as they are: most of those in the questions to come are in no training pair.
    embeddings.requires_grad_(False)
    return CrossEncoder(modules=[encoder, PairHead(encoder.auto_model.config.hidden_size)], device="cpu")


def learn(model: CrossEncoder, rankings: Sequence[Ranking], *, rate: float, max_tokens: int, label: str) -> float:
    """Train by the cross entropy of each ranking's scores and its target, a step a ranking; return the mean loss.

    The rate rises over the first tenth and then falls to nothing. An order says nothing of how high scores are: in the
    end they are shifted so that the mean one is zero, a relevance of one half.
    Source: Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach" (ICML 2007), ListNet.
    """
    encoder, head = model[0], model[1]
    body = [weight for weight in encoder.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(
        [{"params": body, "lr": rate}, {"params": head.parameters(), "lr": rate * HEAD_RATE}], weight_decay=0.01
    )
    steps = len(rankings)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (WARM_UP * steps), (steps - step) / ((1 - WARM_UP) * steps))
    )
    model.max_seq_length = max_tokens
    model.train()
    losses, means = [], []
    for ranking in track(rankings, description=label):
        features = model.preprocess([(ranking.question, passage) for passage in ranking.passages])
        scores = model(features)["scores"][:, 0]
        loss = -(torch.from_numpy(ranking.target).float() * torch.log_softmax(scores, dim=0)).sum()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        losses.append(float(loss.item()))
        means.append(float(scores.mean().item()))
    with torch.no_grad():
        head.linear.bias -= sum(means[steps // 2 :]) / len(means[steps // 2 :])
    return sum(losses) / steps


def save(model: CrossEncoder, folder: Path, *, max_tokens: int) -> None:
    """Write a model that reads up to `max_tokens`."""
    model.max_seq_length = max_tokens
    model.save_pretrained(str(folder))
