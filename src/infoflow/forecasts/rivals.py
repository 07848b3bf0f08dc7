"""Rivals of the forecast that are not made of its own quantities: learning curves and a zero-cost proxy.

*Learning curves* (Domhan, Springenberg and Hutter, IJCAI 2015): parametric families of falling curves are fitted to the
beginning of a run and read at its end. Each family is linear in its coefficients once its exponent is chosen,

    log10 e(t) = a + b g_c(t),   g_c(t) = t^-c (pow3), exp(-c t) (exp3), log10 t (a power law), log10(1 + c t),

so least squares over a grid of c is exact; where the paper samples by MCMC, families are averaged here with the weights
exp(-BIC / 2); one that does not fall is left out. t is the share of the run; the median over seeds is fitted.

*NEAR* (Husistein, Reiher and Eckhoff, arXiv 2408.08776): the effective rank of a matrix with singular values s is
exp(H(s / sum s)), H the entropy; a network's score is the sum over its hidden layers of the effective ranks of the
activations before and after the nonlinearity, at initialisation, on as many inputs as the layer has neurons. More is
better. A line turns it into an error.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from infoflow.nn.transformer import ACTIVATIONS, FeedForward
from infoflow.train.run import Run
from infoflow.train.stack import network_of

EXPONENTS = (0.1, 0.2, 0.5, 1.0, 2.0)
RATES = (1.0, 3.0, 10.0, 30.0)
NOISE = 0.02  # of log10 e, below which a better fit says nothing: few points are fitted exactly
NEAR_SEEDS = 4
LEAST = 1e-9


def extrapolated(errors: list[float], share: float) -> float:
    """log10 of the error at the end of a run of whose curve the first `share` is given (evenly spaced looks)."""
    wanted = np.log10(np.maximum(errors, LEAST))
    t = share * np.arange(1, len(wanted) + 1) / len(wanted)
    found, weights = [wanted[-1]], [_evidence(wanted, np.full(len(wanted), wanted[-1]), 1)]
    for basis in _families():
        if len(wanted) < 3:  # a line through two points fits whatever they are
            break
        columns = np.column_stack([np.ones(len(t)), basis(t)])
        coefficients = np.linalg.lstsq(columns, wanted, rcond=None)[0]
        end = float(coefficients @ [1.0, basis(np.ones(1))[0]])
        if end <= wanted[-1]:
            found.append(end)
            weights.append(_evidence(wanted, columns @ coefficients, 3))
    return float(np.average(found, weights=np.exp(np.array(weights) - max(weights))))


def _families() -> list[Callable[[np.ndarray], np.ndarray]]:
    powers = [lambda t, c=c: t**-c for c in EXPONENTS]
    falls = [lambda t, c=c: np.exp(-c * t) for c in RATES]
    return [*powers, *falls, np.log10, *(lambda t, c=c: np.log10(1 + c * t) for c in RATES)]


def _evidence(wanted: np.ndarray, fitted: np.ndarray, parameters: int) -> float:
    """-BIC / 2 of a Gaussian fit whose noise is at least NOISE."""
    spread = max(float(np.mean((wanted - fitted) ** 2)), NOISE**2)
    return -0.5 * (len(wanted) * np.log(spread) + parameters * np.log(len(wanted)))


def near(run: Run) -> float:
    """NEAR of an untrained network, mean over seeds."""
    target, arch, T = run.regression()
    X = torch.from_numpy(target.sample(max(arch.widths), T, seed=0))
    return float(np.mean([_near(Run(target, arch, T, seed, run.recipe), X) for seed in range(NEAR_SEEDS)]))


@torch.no_grad()
def _near(run: Run, X: Tensor) -> float:
    network: Any = network_of(run, ()).double()
    network.initialise(torch.Generator().manual_seed(run.seed), run.recipe.init_scale)
    ranks: list[float] = []

    def note(block: FeedForward, before: Tensor) -> None:
        rows = before.reshape(-1, before.shape[-1])  # every token (or the CLS) of every sequence is an input
        square = rows[:: max(1, len(rows) // before.shape[-1])][: before.shape[-1]]
        ranks.extend(effective_rank(each) for each in (square, ACTIVATIONS[block.activation](square)))

    for block in network.modules():
        if isinstance(block, FeedForward):
            for layer in block.maps[:-1]:
                layer.register_forward_hook(lambda _, __, out, block=block: note(block, out))
    network(X)
    return float(sum(ranks))


def effective_rank(matrix: Tensor) -> float:
    """exp of the entropy of the singular values, normalised to sum one."""
    values = torch.linalg.svdvals(matrix)
    shares = values / values.sum().clamp_min(1e-30)
    return float(torch.exp(torch.special.entr(shares).sum()))
