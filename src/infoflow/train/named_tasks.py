"""Tasks that people of this field train, each a few lines: `task:mqar,pairs=8` on the command line.

docs/tasks.md has a size at which each is learnt, with the command that shows it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from infoflow.errors import InfoFlowError, unknown
from infoflow.train.recipe import Recipe
from infoflow.train.task import IGNORED, Form, Supervised, streams

Sampler = Callable[[np.random.Generator, int, bool], tuple[np.ndarray, np.ndarray]]


class Drawn(Supervised):
    """Token sequences of one length and integer labels, drawn by `sample(generator, count, held_out)`."""

    def __init__(self, name: str, length: int, form: Form, sample: Sampler) -> None:
        self.name, self.length, self.form, self.sample = name, length, form, sample

    def identity(self) -> dict[str, Any]:
        return {"task": {"name": self.name}}

    def draw(self, T: int | None, recipe: Recipe, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        found = []
        counts = (recipe.samples, recipe.validation)
        for count, stream, held in zip(counts, streams(recipe), (False, True), strict=True):
            found += [torch.from_numpy(values).to(device) for values in self.sample(stream, count, held)]
        return found[0], found[1], found[2], found[3]


def tokens(vocabulary: int, classes: int, each: bool = True, causal: bool = False) -> Form:
    """The form of a named task: numbers in, classes out, learned positions."""
    return Form(vocabulary, classes, tokens=True, classes=True, each=each, causal=causal, positions="additive")


def mqar(pairs: int = 4, symbols: int = 16) -> Drawn:
    """Multi-query associative recall: k_1 v_1 .. k_p v_p, then the p keys again in another order; what was the value?

    Keys are distinct, keys and values are `symbols` each; only the last p places are asked, causally.
    """
    at_least(pairs=pairs, symbols=symbols)
    if pairs > symbols:
        raise InfoFlowError(f"expected at most as many pairs as symbols ({symbols}), got {pairs}.")

    def sample(rng: np.random.Generator, count: int, held: bool) -> tuple[np.ndarray, np.ndarray]:
        keys = rng.permuted(np.tile(np.arange(symbols), (count, 1)), axis=1)[:, :pairs]
        values = rng.integers(symbols, size=(count, pairs))
        asked = rng.permuted(np.tile(np.arange(pairs), (count, 1)), axis=1)
        shown = np.stack([keys, symbols + values], 2).reshape(count, 2 * pairs)
        x = np.concatenate([shown, np.take_along_axis(keys, asked, 1)], 1)
        ignored = np.full((count, 2 * pairs), IGNORED)
        return x, np.concatenate([ignored, np.take_along_axis(values, asked, 1)], 1)

    name = f"task:mqar,pairs={pairs},symbols={symbols}"
    return Drawn(name, 3 * pairs, tokens(2 * symbols, symbols, causal=True), sample)


def induction(length: int = 8, symbols: int = 16) -> Drawn:
    """A random word of distinct symbols, twice: in the second half every next symbol is known from the first."""
    at_least(length=length, symbols=symbols)
    if not 2 <= length <= symbols:
        raise InfoFlowError(f"expected a length from 2 to the number of symbols ({symbols}), got {length}.")

    def sample(rng: np.random.Generator, count: int, held: bool) -> tuple[np.ndarray, np.ndarray]:
        word = rng.permuted(np.tile(np.arange(symbols), (count, 1)), axis=1)[:, :length]
        ignored = np.full((count, length), IGNORED)
        y = np.concatenate([ignored, word[:, 1:], ignored[:, :1]], 1)
        return np.concatenate([word, word], 1), y

    name = f"task:induction,length={length},symbols={symbols}"
    return Drawn(name, 2 * length, tokens(symbols, symbols, causal=True), sample)


def modular_addition(p: int = 11, held: int = 10) -> Drawn:
    """a, b, = : the answer is a + b mod p. One pair in `held` is never trained on, and only those are validated."""
    at_least(p=p, held=held)
    if p < 2 or held < 2:
        raise InfoFlowError(f"expected p and held of at least 2, got {p} and {held}.")
    order = np.random.default_rng(p).permutation(p * p)
    cut = max(1, p * p // held)

    def sample(rng: np.random.Generator, count: int, out: bool) -> tuple[np.ndarray, np.ndarray]:
        chosen = rng.choice(order[:cut] if out else order[cut:], size=count)
        a, b = np.divmod(chosen, p)
        return np.stack([a, b, np.full(count, p)], 1), (a + b) % p

    return Drawn(f"task:modular_addition,p={p},held={held}", 3, tokens(p + 1, p, each=False), sample)


def sorting(length: int = 6, symbols: int = 16) -> Drawn:
    """Numbers in any order, repetitions allowed; at place t the t-th smallest."""
    at_least(length=length, symbols=symbols)

    def sample(rng: np.random.Generator, count: int, held: bool) -> tuple[np.ndarray, np.ndarray]:
        x = rng.integers(symbols, size=(count, length))
        return x, np.sort(x, axis=1)

    return Drawn(f"task:sorting,length={length},symbols={symbols}", length, tokens(symbols, symbols), sample)


def parity(length: int = 8) -> Drawn:
    """Bits; whether their sum is odd."""
    at_least(length=length)

    def sample(rng: np.random.Generator, count: int, held: bool) -> tuple[np.ndarray, np.ndarray]:
        x = rng.integers(2, size=(count, length))
        return x, x.sum(1) % 2

    return Drawn(f"task:parity,length={length}", length, tokens(2, 2, each=False), sample)


NAMED_TASKS: dict[str, Callable[..., Drawn]] = {
    made.__name__: made for made in (mqar, induction, modular_addition, sorting, parity)
}


def at_least(**sizes: int) -> None:
    """Sizes that are whole numbers of at least one."""
    for name, value in sizes.items():
        if type(value) is not int or value < 1:
            raise InfoFlowError(f"expected {name} to be a positive integer, got {value!r}.")


def named_task(spelling: str) -> Drawn:
    """`task:NAME` or `task:NAME,key=value,..`."""
    name, *words = spelling.removeprefix("task:").split(",")
    if name not in NAMED_TASKS:
        raise unknown("task", name, list(NAMED_TASKS))
    make = NAMED_TASKS[name]
    known = list(make.__code__.co_varnames[: make.__code__.co_argcount])
    sizes: dict[str, int] = {}
    for word in words:
        key, equals, value = (piece.strip() for piece in word.partition("="))
        if not equals or not value.lstrip("-").isdigit():
            raise InfoFlowError(f"expected key=integer separated by commas after task:{name}, got {word!r}.")
        if key not in known:
            raise unknown(f"key of {name}", key, known)
        if key in sizes:
            raise InfoFlowError(f"expected each key once, {key!r} comes twice.")
        sizes[key] = int(value)
    return make(**sizes)
