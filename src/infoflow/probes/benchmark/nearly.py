"""Disguises that nearly keep the function, in strengths stated as the NMSE they leave, and the check of the truth.

    noise        normal noise on every attention matrix, in units of its root mean square
    fine-tuned   STEPS steps of gradient descent towards the function's outputs with a tenth of noise on them
    float16      weights rounded to float16 (run in the dtype they had)

The size of the noise and of the steps is found by bisection so that the outputs differ from those before by the stated
NMSE. Afterwards every head is checked against the network before the disguise (same heads, same places), on other
inputs: `agreement` is the smaller of

    1 - E|D' - D|^2 / E|D|^2   D, D' the change of the output when the head carries what it wrote on another input
                               (an interchange intervention); for heads that compute nothing 1 - E|D'|^2 / Var(y)
    1 - TV(p', p)              the mean total variation between its patterns then and now

and a label is kept from KEPT on.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from infoflow.nn import Transformer
from infoflow.probes.benchmark.engine import Engine, nmse, spread
from infoflow.probes.benchmark.truth import Truth

STEPS = 10
KEPT = 0.95
ROUNDS = 8  # of the bisection
SMALLEST, LARGEST = 1e-6, 1.0  # sizes tried


def noisy(network: Transformer, X: Tensor, strength: float, seed: int) -> Transformer:
    drawn = {
        name: torch.randn(p.shape, generator=torch.Generator().manual_seed(seed + k), dtype=torch.float64).to(p)
        for k, (name, p) in enumerate(network.named_parameters())
        if name.startswith("attentions")
    }

    @torch.no_grad()
    def moved(size: float) -> Transformer:
        made = copy.deepcopy(network)
        for name, p in made.named_parameters():
            if name in drawn:
                p.add_(size * p.square().mean().sqrt() * drawn[name])
        return made

    return _of_strength(network, X, strength, moved)


def tuned(network: Transformer, X: Tensor, strength: float, seed: int) -> Transformer:
    """Steps of gradient descent in every matrix, each as long as `size` times the matrix."""
    with torch.no_grad():
        wanted = network(X)
    off = 0.1 * wanted.std()

    def moved(size: float) -> Transformer:
        made = copy.deepcopy(network).requires_grad_(True)
        order = torch.Generator().manual_seed(seed)
        for _ in range(STEPS):
            rows = torch.randint(0, len(X), (32,), generator=order)
            labels = wanted[rows] + off * torch.randn(wanted[rows].shape, generator=order)
            slopes = torch.autograd.grad((made(X[rows]) - labels).square().mean(), list(made.parameters()))
            with torch.no_grad():
                for p, slope in zip(made.parameters(), slopes, strict=True):
                    p.sub_(size * p.norm() / slope.norm().clamp(min=1e-20) * slope)
        return made.requires_grad_(False)

    return _of_strength(network, X, strength, moved)


@torch.no_grad()
def rounded(network: Transformer) -> Transformer:
    made = copy.deepcopy(network)
    for p in made.parameters():
        p.copy_(p.half().to(p))
    return made


def _of_strength(
    network: Transformer, X: Tensor, strength: float, moved: Callable[[float], Transformer]
) -> Transformer:
    """The largest change found whose NMSE is at most `strength`."""
    wanted = outputs(network, X)
    low, high, best = math.log(SMALLEST), math.log(LARGEST), moved(SMALLEST)
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        made = moved(math.exp(middle))
        left = nmse(outputs(made, X), wanted)
        if math.isfinite(left) and left <= strength:
            low, best = middle, made
        else:
            high = middle
    return best


@torch.no_grad()
def outputs(network: Transformer, X: Tensor) -> Tensor:
    y: Tensor = network(X)
    return y if y.ndim > 1 else y[:, None]


@torch.no_grad()
def checked(before: Transformer, after: Transformer, truth: Truth, X: Tensor) -> Truth:
    """The truth with every head's agreement; labels of heads that the disguise changed are dropped."""
    half = len(X) // 2
    old, new = Engine(before), Engine(after)
    runs = [[engine.run(part) for part in (X[:half], X[half : 2 * half])] for engine in (old, new)]
    scale = spread(runs[0][0].output) * half
    heads = {}
    for node, head in truth.heads.items():
        (clean, other), (clean2, other2) = runs
        D = old.swapped(clean, other, node) - clean.output
        D2 = new.swapped(clean2, other2, node) - clean2.output
        if head.role == "computes":
            same = 1 - float((D2 - D).square().sum() / D.square().sum().clamp(min=1e-30))
        else:
            same = 1 - float((D2 - D).square().sum()) / scale
        l, i = node
        apart = (clean2.weights[l][:, i] - clean.weights[l][:, i]).abs().sum(-1).mean() / 2
        agreement = max(0.0, min(same, 1 - float(apart)))
        labels = head.labels if agreement >= KEPT else ()
        heads[node] = replace(head, agreement=round(agreement, 4), labels=labels)
    return replace(truth, heads=heads)
