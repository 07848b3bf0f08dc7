"""Small one-layer networks of the house with random weights, and the errors of many sequences of a box."""

import numpy as np
import torch

from infoflow.nn import Transformer, TransformerConfig
from infoflow.targets.target import Target


def random_network(
    seed: int, h: int = 2, d: int = 2, activation: str = "gelu", scale: float = 1.0, outputs: int = 1, **options: object
) -> Transformer:
    config = TransformerConfig(
        d,
        (h,),
        (2,),
        (6,),
        outputs=outputs,
        activation=activation,
        **options,  # type: ignore[arg-type]
    )
    network = Transformer(config).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return network


def largest_error(network: Transformer, target: Target, T: int, seed: int = 0, tries: int = 2000) -> float:
    """Over corners, uniform tokens, clusters, and one or two tokens apart from the rest."""
    rng = np.random.default_rng(seed)
    low, high = target.domain
    d = target.dim
    corners = rng.integers(0, 2, (tries, T, d)).astype(float)
    few = np.take_along_axis(rng.uniform(size=(tries, 3, d)), rng.integers(0, 3, (tries, T, 1)), 1)
    few_corners = np.take_along_axis(
        corners[:, :1].repeat(3, 1) * 0 + rng.integers(0, 2, (tries, 3, d)), rng.integers(0, 3, (tries, T, 1)), 1
    )
    apart = np.repeat(rng.uniform(size=(tries, 1, d)), T, 1)
    apart[:, 0] = rng.uniform(size=(tries, d))
    X = low + (high - low) * np.concatenate([corners, rng.uniform(size=(tries, T, d)), few, few_corners, apart])
    if target.condition:
        X = X[target.slack(X) >= 0]
    with torch.no_grad():
        values = network.double()(torch.from_numpy(X)).numpy()
    return float(np.abs(values - target(X)).max())
