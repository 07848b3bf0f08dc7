"""Tasks to take: a user's own samples (`task`), and those that people of this field train (`task:mqar,pairs=8`).

iflow.task(x, y)      x (N, T, d) floats: vectors;  x (N, T) integers: numbers of a vocabulary, -1 for no token
                      y (N,) or (N, o) floats: regression; (N, T, o): one for every token; NaN counts nowhere
                      y (N,) integers: the class of a sequence; (N, T): of every token; -1 counts nowhere
iflow.task(x)         the next token of every token

docs/tasks.md has a size at which each named task is learnt, with the command that shows it.
"""

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from infoflow.arguments import pairs
from infoflow.errors import InfoFlowError, unknown
from infoflow.train.recipe import Recipe
from infoflow.train.task import IGNORED, Form, Loss, Metrics, Supervised, streams

Samples = tuple[Tensor, Tensor]
Sampler = Callable[[np.random.Generator, int, bool], tuple[np.ndarray, np.ndarray]]


class Arrays(Supervised):
    """Samples that are given, named by the hash of what they hold."""

    def __init__(self, name: str, form: Form, training: Samples, validation: Samples) -> None:
        self.name, self.form, self.training, self.validation = name, form, training, validation
        self.length = training[0].shape[1]
        self.digest = _digest([*training, *validation])

    def identity(self) -> dict[str, Any]:
        """The hash of the samples, the form, and the hashes of the user's functions."""
        left = ("loss", "metrics", "places")  # the places follow from the samples
        form = {name: value for name, value in asdict(self.form).items() if name not in left}
        metrics = {name: source(metric) for name, metric in (self.form.metrics or {}).items()}
        own = {"loss": source(self.form.loss) if callable(self.form.loss) else self.form.loss, "metrics": metrics}
        return {"task": {"name": self.name, "data": self.digest, **form, **own}}

    def counts(self) -> tuple[int, int]:
        """Samples for training and for validation."""
        return len(self.training[0]), len(self.validation[0])

    def draw(self, T: int | None, recipe: Recipe, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The given samples, on the device."""
        (x, y), (x_validation, y_validation) = self.training, self.validation
        if not self.form.tokens:
            x, x_validation = (values.to(getattr(torch, recipe.dtype)) for values in (x, x_validation))
        return x.to(device), y.to(device), x_validation.to(device), y_validation.to(device)


def task(
    x: Any,
    y: Any = None,
    *,
    validation: float | tuple[Any, Any] = 0.1,
    name: str = "arrays",
    causal: bool | None = None,
    positions: Any = None,
    loss: Loss | None = None,
    metrics: Metrics | None = None,
) -> Arrays:
    """A task made of arrays (numpy or torch); see the top of this file for what they mean.

    `validation` is the share of samples at the end that is held out, or arrays of its own. Next-token prediction is
    causal, all else is not unless `causal` says so; numbers of a vocabulary get additive positions, vectors none,
    unless `positions` or the architecture names others. `loss` is "squared", "cross_entropy" or a function of outputs
    (..., o) and labels that gives a value for every place, as are `metrics`, whose means over the validation samples
    are in the results. Metrics see labels as they are trained on: real ones standardised unless the loss is your own.
    """
    form, training = _read(x, y)
    if isinstance(validation, tuple):
        other, held = _read(*validation)
        if (other.tokens, other.classes, other.each) != (form.tokens, form.classes, form.each):
            raise InfoFlowError("expected validation arrays of the same kind as those for training, got others.")
        form = replace(
            form,
            inputs=max(form.inputs, other.inputs),
            outputs=max(form.outputs, other.outputs),
            padded=form.padded or other.padded,
            holes=form.holes or other.holes,
        )
    else:
        training, held = _hold_out(training, validation)
    if training[0].shape[1:] != held[0].shape[1:] or training[1].shape[1:] != held[1].shape[1:]:
        raise InfoFlowError(
            f"expected validation samples of shape {tuple(training[0].shape[1:])} like those for training, "
            f"got {tuple(held[0].shape[1:])}."
        )
    if loss not in (None, "squared", "cross_entropy") and not callable(loss):
        raise InfoFlowError(f'expected loss "squared", "cross_entropy" or a function, got {loss!r}.')
    if loss == ("squared" if form.classes else "cross_entropy"):
        raise InfoFlowError(f"expected {'integer' if not form.classes else 'real'} labels for loss {loss}, got others.")
    form = replace(
        form,
        causal=y is None if causal is None else causal,
        positions=("additive" if form.tokens else "none") if positions is None else positions,
        loss=loss,
        metrics=metrics,
        places=_places(training[1], held[1]) if form.classes and form.each else None,
    )
    return Arrays(name, form, training, held)


def _read(x: Any, y: Any) -> tuple[Form, Samples]:
    """Arrays as tensors, and what they say of inputs and answers."""
    inputs = _tensor("x", x)
    tokens = not inputs.is_floating_point()
    if inputs.ndim != (2 if tokens else 3) or not inputs.shape[1]:
        raise InfoFlowError(f"expected x of shape (N, T) integers or (N, T, d) floats, got {tuple(inputs.shape)}.")
    if tokens and int(inputs.min()) < IGNORED:
        raise InfoFlowError(f"expected token numbers of at least 0, or -1 for no token, got {int(inputs.min())}.")
    if not tokens and not bool(inputs.isfinite().all()):
        raise InfoFlowError("expected finite numbers in x, got NaN or infinity.")
    labels = _next(inputs) if y is None else _tensor("y", y)
    if len(labels) != len(inputs):
        raise InfoFlowError(f"expected a label for each of {len(inputs)} samples, got {len(labels)}.")
    size = int(inputs.max()) + 1 if tokens else inputs.shape[2]
    padded = tokens and bool((inputs == IGNORED).any())
    if labels.is_floating_point():
        return _real(labels, Form(size, 1, tokens, padded=padded), inputs)
    each = labels.ndim == 2
    if labels.ndim > 2 or (each and labels.shape[1] != inputs.shape[1]) or int(labels.min()) < IGNORED:
        raise InfoFlowError(
            f"expected classes from 0 (-1: ignored) of shape (N,) or (N, T), got {tuple(labels.shape)} from "
            f"{int(labels.min())}."
        )
    classes = max(int(labels.max()) + 1, size if y is None else 1)
    return Form(size, classes, tokens, classes=True, each=each, padded=padded), (inputs, labels)


def _places(*labels: Tensor) -> slice | None:
    """From the first to the last token that has a label in some sample."""
    known = torch.cat([(each != IGNORED).any(0)[None] for each in labels]).any(0).nonzero().flatten().tolist()
    return slice(known[0], known[-1] + 1) if known else None


def _real(labels: Tensor, form: Form, inputs: Tensor) -> tuple[Form, Samples]:
    if bool(labels.isinf().any()):
        raise InfoFlowError("expected finite labels, or NaN where there is none, got infinity.")
    labels = labels.double()
    labels = labels.unsqueeze(1) if labels.ndim == 1 else labels
    each = labels.ndim == 3
    if labels.ndim > 3 or (each and labels.shape[1] != inputs.shape[1]):
        raise InfoFlowError(f"expected real labels of shape (N,), (N, o) or (N, T, o), got {tuple(labels.shape)}.")
    return replace(form, outputs=labels.shape[-1], each=each, holes=bool(labels.isnan().any())), (inputs, labels)


def _next(x: Tensor) -> Tensor:
    if x.is_floating_point():
        raise InfoFlowError("expected labels for vectors, got none; only token numbers have a next one.")
    return torch.cat([x[:, 1:], torch.full_like(x[:, :1], IGNORED)], 1)


def _hold_out(samples: Samples, share: float) -> tuple[Samples, Samples]:
    count = len(samples[0])
    cut = count - max(2, round(share * count)) if 0 < share < 1 else 0
    if cut < 1:
        raise InfoFlowError(f"expected a share of samples to hold out, between 0 and 1, got {share!r} of {count}.")
    return (samples[0][:cut], samples[1][:cut]), (samples[0][cut:], samples[1][cut:])


def _tensor(name: str, values: Any) -> Tensor:
    try:
        found = values if isinstance(values, Tensor) else torch.from_numpy(np.ascontiguousarray(values))
    except (TypeError, ValueError) as error:
        raise InfoFlowError(f"expected {name} as an array of numbers, got {type(values).__name__} ({error}).") from None
    if found.is_complex() or not found.ndim or not found.numel():
        raise InfoFlowError(f"expected {name} as real numbers, one row a sample, got {found.dtype}, {found.shape}.")
    return found.detach().cpu() if found.is_floating_point() else found.detach().cpu().long()


def _digest(tensors: list[Tensor]) -> str:
    made = hashlib.sha256()
    for tensor in tensors:
        made.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        made.update(tensor.contiguous().numpy().tobytes())
    return made.hexdigest()[:24]


def source(function: Callable[..., Any]) -> str:
    """A user's function in an identity: the hash of its text, or of its code where there is no text."""
    try:
        text = inspect.getsource(function).encode()
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        if code is None:
            raise InfoFlowError(f"expected a Python function, got {function!r}; wrap it in one.") from None
        text = code.co_code + repr(code.co_consts).encode()
    return hashlib.sha256(text).hexdigest()[:24]


class DrawnTask(Supervised):
    """Token sequences of one length and integer labels, drawn by `sample(generator, count, held_out)`."""

    def __init__(self, name: str, length: int, form: Form, sample: Sampler) -> None:
        self.name, self.length, self.form, self.sample = name, length, form, sample

    def __reduce__(self) -> Any:
        """A named task is sent to another process by its name: what it draws with cannot be."""
        known = self.name.removeprefix("task:").partition(",")[0] in NAMED_TASKS
        return (named_task, (self.name,)) if known else super().__reduce__()

    def identity(self) -> dict[str, Any]:
        """The name says all."""
        return {"task": {"name": self.name}}

    def draw(self, T: int | None, recipe: Recipe, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Samples for training and validation, from streams of the recipe's data seed."""
        found = []
        counts = (recipe.samples, recipe.validation)
        for count, stream, held in zip(counts, streams(recipe)[:2], (False, True), strict=True):
            found += [torch.from_numpy(values).to(device) for values in self.sample(stream, count, held)]
        return found[0], found[1], found[2], found[3]


def tokens(vocabulary: int, classes: int, each: bool = True, causal: bool = False) -> Form:
    """The form of a named task: numbers in, classes out, learned positions."""
    return Form(vocabulary, classes, tokens=True, classes=True, each=each, causal=causal, positions="additive")


def mqar(pairs: int = 4, symbols: int = 16) -> DrawnTask:
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
    form = replace(tokens(2 * symbols, symbols, causal=True), places=slice(2 * pairs, 3 * pairs))
    return DrawnTask(name, 3 * pairs, form, sample)


def induction(length: int = 8, symbols: int = 16) -> DrawnTask:
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
    form = replace(tokens(symbols, symbols, causal=True), places=slice(length, 2 * length - 1))
    return DrawnTask(name, 2 * length, form, sample)


def modular_addition(p: int = 11, held: int = 10) -> DrawnTask:
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

    return DrawnTask(f"task:modular_addition,p={p},held={held}", 3, tokens(p + 1, p, each=False), sample)


def sorting(length: int = 6, symbols: int = 16) -> DrawnTask:
    """Numbers in any order, repetitions allowed; at place t the t-th smallest."""
    at_least(length=length, symbols=symbols)

    def sample(rng: np.random.Generator, count: int, held: bool) -> tuple[np.ndarray, np.ndarray]:
        x = rng.integers(symbols, size=(count, length))
        return x, np.sort(x, axis=1)

    return DrawnTask(f"task:sorting,length={length},symbols={symbols}", length, tokens(symbols, symbols), sample)


def parity(length: int = 8) -> DrawnTask:
    """Bits; whether their sum is odd."""
    at_least(length=length)

    def sample(rng: np.random.Generator, count: int, held: bool) -> tuple[np.ndarray, np.ndarray]:
        x = rng.integers(2, size=(count, length))
        return x, x.sum(1) % 2

    return DrawnTask(f"task:parity,length={length}", length, tokens(2, 2, each=False), sample)


def largest_token(symbols: int = 64, length: int = 4) -> DrawnTask:
    """Numbers in any order; the largest of them. Order does not matter, so there are no positions."""
    at_least(symbols=symbols, length=length)

    def sample(rng: np.random.Generator, count: int, held: bool) -> tuple[np.ndarray, np.ndarray]:
        x = rng.integers(symbols, size=(count, length))
        return x, x.max(1)

    form = replace(tokens(symbols, symbols, each=False), positions="none")
    return DrawnTask(f"task:largest_token,symbols={symbols},length={length}", length, form, sample)


NAMED_TASKS: dict[str, Callable[..., DrawnTask]] = {
    made.__name__: made for made in (mqar, induction, modular_addition, sorting, parity, largest_token)
}


def at_least(**sizes: int) -> None:
    """Sizes that are whole numbers of at least one."""
    for name, value in sizes.items():
        if type(value) is not int or value < 1:
            raise InfoFlowError(f"expected {name} to be a positive integer, got {value!r}.")


def named_task(spelling: str) -> DrawnTask:
    """`task:NAME` or `task:NAME,key=value,..`."""
    name, *words = spelling.removeprefix("task:").split(",")
    if name not in NAMED_TASKS:
        raise unknown("task", name, list(NAMED_TASKS))
    make = NAMED_TASKS[name]
    known = list(make.__code__.co_varnames[: make.__code__.co_argcount])
    sizes: dict[str, int] = {}
    for key, value in pairs(words, f"separated by commas after task:{name}").items():
        if key not in known:
            raise unknown(f"key of {name}", key, known)
        if not value.lstrip("-").isdigit():
            raise InfoFlowError(f"expected {key} to be an integer, got {value!r}.")
        sizes[key] = int(value)
    return make(**sizes)
