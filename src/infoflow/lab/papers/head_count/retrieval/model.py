"""Ranking as a task: the T candidates and the query are tokens of a two-layer encoder; the score of a candidate is the
product of its final state with the query's."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from infoflow.lab.papers.head_count.retrieval.features import NO_WORD
from infoflow.lab.papers.head_count.retrieval.lists import Lists
from infoflow.nn import Transformer, TransformerConfig
from infoflow.train.recipe import Recipe
from infoflow.train.task import Data, Task, entropies, wrong

TEST_SHARE = 5  # one list in five is for testing


class Ranker(nn.Module):
    """Lists of text numbers (M, B, T + 1), the query last, to scores (M, B, T)."""

    content: Tensor

    def __init__(self, content: Tensor, size: int, buckets: int, h: int, head: int, width: int, stack: Any) -> None:
        super().__init__()
        self.trained = not content.is_floating_point()
        dim = size if self.trained else content.shape[-1]
        self.words = nn.Parameter(torch.empty(*stack, buckets, dim)) if self.trained else None
        config = TransformerConfig(
            dim=dim + 1,  # the last coordinate marks the query
            heads=(h, h),
            head_dims=(head, head),
            widths=(width, width),
            activation="gelu",
            ffn_skip=True,
            readout=False,
            cls=False,
        )
        self.transformer = Transformer(config, stack)
        self.register_buffer("content", content, persistent=False)

    def vectors(self, lists: Int[Tensor, "M B columns"]) -> Float[Tensor, "M B columns dim"]:
        """The sum of a text's word vectors, or its frozen embedding, at unit length."""
        found = self.content[lists]
        if self.words is not None:
            rows = found.clamp(min=0).flatten(1, -2)  # (M, B columns, longest)
            real = (found != NO_WORD).flatten(1, -2).to(self.words)
            # Table by table: in training they lie apart in memory, and one for all models would be a copy each step.
            summed = [
                nn.functional.embedding_bag(chosen, table, mode="sum", per_sample_weights=weights)
                for chosen, table, weights in zip(rows, self.words, real, strict=True)
            ]
            found = torch.stack(summed).view(*lists.shape, -1)
        return nn.functional.normalize(found, dim=-1)

    def forward(self, lists: Int[Tensor, "M B columns"]) -> Float[Tensor, "M B T"]:
        """A score for every candidate of every list; the query is the last row."""
        x = self.vectors(lists)
        mark = torch.zeros_like(x[..., :1])
        mark[..., -1, :] = 1.0
        state = self.transformer(torch.cat([x * x.shape[-1] ** 0.5, mark], -1))
        scores: Tensor = (state[..., :-1, :] * state[..., -1:, :]).sum(-1) / state.shape[-1] ** 0.5
        return scores

    def cosine(self, lists: Int[Tensor, "M B columns"]) -> Float[Tensor, "M B T"]:
        """The same by cosine similarity, without training."""
        x = self.vectors(lists)
        return (x[..., :-1, :] * x[..., -1:, :]).sum(-1)

    def initialise(self, generator: torch.Generator, scale: float = 1.0) -> None:
        """Normal word vectors, where there are any, and the Transformer's own law."""
        if self.words is not None:
            self.words.data.normal_(0.0, 1.0, generator=generator)
        self.transformer.initialise(generator, scale)


@dataclass(frozen=True, eq=False)
class Ranking(Task):
    """Lists of one length with one kind of content; the label is where the relevant candidate stands."""

    lists: Lists
    content: Tensor = field(repr=False)
    features: str  # "words" or "minilm"
    T: int
    h: int
    size: int  # of trained word vectors
    buckets: int
    head: int
    width: int
    chosen: bool = False  # the best epoch is chosen on one list in five, and scored on another

    name = "ranking"
    most_stacked = 8

    def identity(self) -> dict[str, Any]:
        """The lists' hash and every size."""
        names = ("features", "T", "h", "size", "buckets", "head", "width")
        settings = {name: getattr(self, name) for name in names}
        about = {"source": self.lists.source, "text": self.lists.digest, "longest": self.content.shape[-1]}
        return {"task": {"name": self.name, **about, **settings, **({"chosen": True} if self.chosen else {})}}

    def counts(self) -> tuple[int, int]:
        """Lists for training and for testing."""
        test = self.lists.count(self.T) // TEST_SHARE
        return self.lists.count(self.T) - test * (1 + self.chosen), test

    def network(self, arch: Any, T: int | None, recipe: Recipe, stack: tuple[int, ...]) -> nn.Module:
        """A ranker for every seed."""
        return Ranker(self.content, self.size, self.buckets, self.h, self.head, self.width, stack)

    def data(self, T: int | None, recipe: Recipe, seeds: Sequence[int], device: torch.device) -> Data:
        """The same lists, split and shuffled places for every model: the split is by list, from a fixed seed."""
        x, y = (values.to(device)[None] for values in shuffled(self.lists.of_length(self.T)))
        cut, held = self.counts()
        test = Data(x[:, :cut], y[:, :cut], x[:, -held:], y[:, -held:], {}, 1 - 1 / self.T)
        if not self.chosen:
            return test
        middle = slice(cut, cut + held)
        return replace(test, x_validation=x[:, middle], y_validation=y[:, middle], test=test)

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy of the right candidate."""
        return entropies(output, y).mean(1)

    def metrics(self, output: Tensor, y: Tensor) -> dict[str, Tensor]:
        """The share of wrong answers, and of right ones."""
        missed = wrong(output, y)
        return {"error": missed, "accuracy": 1 - missed}

    def keep(self, network: nn.Module, data: Data) -> list[dict[str, Any]]:
        """Accuracy on the native lists, where there are some of this length."""
        models = next(network.parameters()).shape[0]
        x, y = shuffled(self.lists.of_length(self.T, native=True))
        if not len(x):
            return super().keep(network, data)
        x, y = x.to(data.x.device), y.to(data.x.device)
        right = (network(x.expand(models, *x.shape)).argmax(-1) == y).double().mean(1)
        return [{"native accuracy": float(share), "native lists": len(x)} for share in right]

    def cosine_accuracy(self, native: bool = False) -> float | None:
        """The candidate of largest cosine with the query, nothing trained (word vectors as they are drawn, seed 0)."""
        x, y = shuffled(self.lists.of_length(self.T, native=native))
        if not native:
            cut = len(x) - len(x) // TEST_SHARE
            x, y = x[cut:], y[cut:]
        if not len(x):
            return None
        network: Any = self.network(None, None, Recipe(), (1,))
        if network.words is not None:
            network.words.data.normal_(0.0, 1.0, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            found = torch.cat([network.cosine(part[None])[0].argmax(-1) for part in x.split(256)])
        return float((found == y).double().mean())


def shuffled(lists: Any) -> tuple[Int[Tensor, "lists columns"], Int[Tensor, " lists"]]:
    """Rows in a fixed random order with candidates in random places, the query moved last; the label is 0-based."""
    rng = np.random.default_rng(0)
    rows = lists[rng.permutation(len(lists))]
    T = lists.shape[1] - 1
    order = np.argsort(rng.random((len(rows), T)), axis=1)
    candidates = np.take_along_axis(rows[:, 1:], order, axis=1)
    x = np.concatenate([candidates, rows[:, :1]], axis=1)
    return torch.from_numpy(x), torch.from_numpy((order == 0).argmax(1))
