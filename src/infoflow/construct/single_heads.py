"""The two single heads as things one can save, load and certify: the one that remembers and the one of exponentials."""

import itertools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow import arguments
from infoflow.arguments import shown
from infoflow.certificates import Certificate, asked_of, error_claim
from infoflow.certificates.attack import starts
from infoflow.construct.coverage import expect_float64
from infoflow.construct.exponential_head import ExponentialHead, exponential_head
from infoflow.construct.memory_head import MemoryHead, memory_head, write_memory
from infoflow.construct.offers.memory_head import MemoryPlan
from infoflow.errors import InfoFlowError
from infoflow.nn import files
from infoflow.targets.spelling import parse
from infoflow.targets.target import Target

KINDS = ("memory_head", "exponential_head")
SAMPLE = 800  # sequences in a round of the attack
LONGEST = 2**21  # numbers in them; the largest of their temporaries has a few times as many


@dataclass(frozen=True, eq=False)
class SingleHead:
    """X (B, T, d) -> (B,) by one head; `certificate` states the bound the construction proves over the domain."""

    kind: str
    head: MemoryHead | ExponentialHead
    target: Target
    eps: float
    reasons: tuple[str, ...] = ()  # what a file holds that the construction does not

    def __call__(self, X: Float[Tensor, "B T d"]) -> Float[Tensor, " B"]:
        if isinstance(self.head, MemoryHead):
            return self.head(X)
        return torch.from_numpy(self.head(X.numpy()))

    @property
    def certificate(self) -> Certificate:
        d, (low, high) = self.target.dim, self.target.domain
        return Certificate(
            error_claim(self.target.spelling, self.eps, self.head.T, [low] * d, [high] * d),
            self.head.bound,
            "float64 with rounding allowance",
            ("IEEE float64, exp and tanh within 4 units in the last place", "sums in any order"),
            reasons=self.reasons,
            parts=self.head.parts,
        )

    def attack(self, seed: int = 0, seconds: float = 1.0) -> float | None:
        """The largest error on random, corner, tied and clustered inputs; None where one sequence is too long."""
        generator, end, worst = np.random.default_rng(seed), time.monotonic() + seconds, 0.0
        low, high = self.target.domain
        numbers = self.head.T * self.target.dim
        if numbers > LONGEST:
            return None
        for round_number in itertools.count():
            rows = max(1, min(SAMPLE, LONGEST // numbers))
            X = low + (high - low) * starts(generator, rows, self.head.T, self.target.dim, round_number)
            y = self(torch.from_numpy(X)).numpy()
            worst = max(worst, float(np.nan_to_num(np.abs(y - self.target(X)), nan=np.inf).max()))
            if time.monotonic() >= end:
                break
        return worst

    def tensors(self) -> dict[str, Tensor]:
        if isinstance(self.head, MemoryHead):
            names = ("weight", "bias")
            layers = enumerate(self.head.readout)
            return {f"readout.{i}.{name}": t for i, pair in layers for name, t in zip(names, pair, strict=True)}
        return {"scales": torch.tensor([self.head.beta, self.head.steepness], dtype=torch.float64)}

    def report(self) -> dict[str, Any]:
        """What `infoflow build TARGET` prints; parameters are those of the read-out, the head has none."""
        low, high = self.target.domain
        sizes = [t.numel() for t in self.tensors().values()]
        if isinstance(self.head, MemoryHead):
            embed, width = self.head.T * self.head.d, max(len(bias) for _, bias in self.head.readout[:-1])
            nonzero = sum(int(torch.count_nonzero(t)) for t in self.tensors().values())
        else:
            embed, width = self.head.head_dim, self.head.head_dim * self.head.units
            sizes = [3 * width + 1]  # a weight and a bias into each unit, a weight out of it, the last bias
            nonzero = sizes[0]
        return {
            "eps": self.eps,
            "domain": [[low] * self.target.dim, [high] * self.target.dim],
            "weight_bound": None,
            "rule": self.kind,
            "heads": [1],
            "embed": [embed],
            "head_dims": [embed],
            "widths": [width],
            "encoder_width": 0,
            "beta": [0.0],
            "parameters": sum(sizes),
            "nonzero": nonzero,
            "bound": self.certificate.bound,
            "parts": self.head.parts,
            "arithmetic": self.certificate.arithmetic,
        }

    def save(self, path: str | Path) -> Path:
        if not self.target.spelling:
            raise InfoFlowError("expected a target with a spelling, this one has none; name it to save its network.")
        header = {"target": self.target.spelling, "T": self.head.T, "eps": self.eps}
        if isinstance(self.head, ExponentialHead):
            header["units"] = self.head.units
        return files.write(path, self.kind, self.tensors(), header | {"certificate": self.certificate.to_json()})


def single_head(kind: str, target: Target, T: int, eps: float, units: int | None = None) -> SingleHead:
    arguments.integer("T", T)
    target.check_length(T)
    arguments.eps(eps)
    head = memory_head(target, T, eps) if kind == "memory_head" else exponential_head(target, T, eps, units)
    return SingleHead(kind, head, target, eps)


def write_single_head(kind: str, plan: MemoryPlan | ExponentialHead, target: Target, eps: float) -> SingleHead:
    """What `construct.offers` planned; the head of exponentials is its own plan."""
    head = write_memory(plan) if isinstance(plan, MemoryPlan) else plan
    return SingleHead(kind, head, target, float(eps))


def load_memory(tensors: dict[str, Any], header: dict[str, Any]) -> SingleHead:
    return _loaded("memory_head", tensors, header)


def load_exponential(tensors: dict[str, Any], header: dict[str, Any]) -> SingleHead:
    return _loaded("exponential_head", tensors, header)


def _loaded(kind: str, tensors: dict[str, Any], header: dict[str, Any]) -> SingleHead:
    """Made again from target, T and eps; tensors that differ are named and the certificate does not hold."""
    target, T, units, eps = header.get("target"), header.get("T"), header.get("units"), asked_of(header)
    if not isinstance(target, str) or type(T) is not int or eps is None:
        raise InfoFlowError(f"expected target, T and eps in the header of a {kind}, got something else.")
    if units is not None and type(units) is not int:
        raise InfoFlowError(f"expected a whole number of units in the header of a {kind}, got {shown(units)}.")
    asked = parse(target)
    first = tensors.get("readout.0.weight")  # Td columns: what is made again is no larger than what the file holds
    if kind == "memory_head" and (first is None or first.ndim != 2 or first.shape[1] != T * asked.dim):
        raise InfoFlowError(f"expected readout.0.weight with T d = {T * asked.dim} columns, found none; it is damaged.")
    made = single_head(kind, asked, T, eps, units)
    wanted = made.tensors()
    files.expect(tensors, {name: tuple(t.shape) for name, t in wanted.items()})
    expect_float64(tensors.items())
    wrong = tuple(f"{n} differs from the construction" for n, t in wanted.items() if not torch.equal(tensors[n], t))
    return SingleHead(kind, made.head, made.target, made.eps, wrong)
