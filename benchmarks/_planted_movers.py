"""Which heads copy the symbol they see to its logit: by intervention, and as people read it off the weights.

    interchange          `probes.copying` on planted networks: the head's heaviest key s for the CLS gets another symbol
                         b for its own symbol a; the value fetched from s (attention held) alone is put in place, and
                         score = mean [(y_b - y_a) then - (y_b - y_a) as it was] / (2 sd(y)), y the logits
    logit attribution    what the head's contribution adds to the logit of the symbol it looks at, over the mean of all
                         symbols, in units of sd(y); through the read-out's slope (the copy score of Wang et al., 2022)
    OV eigenvalues       sum of Re(lambda) / sum of |lambda| of the map from symbols to logits, encoder to read-out
                         through the head's values (Elhage et al., 2021): positive means copying

The last two look straight through the read-out, so they speak of heads of the last layer; others get 0.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from infoflow.probes.benchmark.engine import Engine, Pass
from infoflow.probes.benchmark.read import PlantedNetwork

DOCUMENTS = 32
Scores = list[list[float]]  # a number for every head, one list per layer


@torch.no_grad()
def answers(network: PlantedNetwork, engine: Engine) -> dict[str, Scores]:
    assert network.symbols is not None
    X, symbols = network.X[:DOCUMENTS], network.symbols[:DOCUMENTS]
    run = engine.run(X)
    K = network.logits
    slope = _slope(engine, run, K)
    return {
        "infoflow: copying": _each(engine, lambda l, i: _interchange(engine, X, symbols, run, K, l, i)),
        "logit attribution": _last(engine, lambda i: _attributed(run, symbols, slope, K, i)),
        "OV eigenvalues": _last(engine, lambda i: _eigenvalues(engine, X, K, slope, i)),
    }


def _each(engine: Engine, score) -> Scores:  # type: ignore[no-untyped-def]
    return [[score(l, i) for i in range(h)] for l, h in enumerate(engine.heads)]


def _last(engine: Engine, score) -> Scores:  # type: ignore[no-untyped-def]
    return _each(engine, lambda l, i: score(i) if l == engine.layers - 1 else 0.0)


def _with_symbol(X: Tensor, K: int, place: Int[Tensor, " B"], symbol: Int[Tensor, " B"]) -> Tensor:
    """Tokens (target, one-hot symbol, v) with another symbol at one place of every document."""
    changed = X.clone()
    changed[torch.arange(len(X)), place, -1 - K : -1] = functional.one_hot(symbol, K).to(X)
    return changed


def _interchange(engine: Engine, X: Tensor, symbols: Tensor, run: Pass, K: int, l: int, i: int) -> float:
    rows = torch.arange(len(X))
    weights = run.weights[l][:, i, -1]
    place = weights.argmax(-1)
    own = symbols[rows, place]
    scale = 2 * float(run.output[:, -K:].std(1).mean().clamp(min=1e-12))
    found = []
    for step in range(1, K):
        other = (own + step) % K
        x = held(engine, _with_symbol(X, K, place, other), run, l)
        moved = weights[rows, place, None] * _fetched(engine, l, i, (x - run.streams[l])[rows, place])
        c = run.contributions[l].clone()
        c[:, i, -1] += moved
        change = (engine.finish(l, run.streams[l], c) - run.output)[:, -K:]
        found.append(float((change[rows, other] - change[rows, own]).mean()) / scale)
    return sum(found) / len(found)


def _fetched(engine: Engine, l: int, i: int, x: Float[Tensor, "B E"]) -> Float[Tensor, "B E"]:
    """What head i of layer l writes for a key that holds x, in full."""
    layer = engine.layer(l)
    assert layer.value is not None
    n = layer.query.shape[1]
    written: Tensor = x @ layer.value[i].T @ layer.output[:, i * n : (i + 1) * n].T
    return written


def held(engine: Engine, X: Tensor, run: Pass, layers: int) -> Tensor:
    """The stream behind so many layers with all patterns as they were in `run`."""
    x = engine.model.embed(X)
    for l in range(layers):
        layer = engine.layer(l)
        T, (h, n, _) = run.weights[l].shape[-1], layer.query.shape
        assert layer.value is not None
        values = torch.einsum("bte,hne->bhtn", x[:, :T], layer.value)
        added = torch.einsum("bhqn,ehn->bqe", run.weights[l] @ values, layer.output.view(-1, h, n))
        x = engine.behind(l, x, added)
    return x


def _slope(engine: Engine, run: Pass, K: int) -> Float[Tensor, "K E"]:
    """d logits / d stream of the read-out, at the mean state of the CLS."""
    state = (run.streams[-1][:, -1] + run.contributions[-1].sum(1)[:, -1]).mean(0)
    found: Tensor = torch.func.jacrev(engine.model.readout)(state)[-K:]  # type: ignore[arg-type]
    return found


def _attributed(run: Pass, symbols: Tensor, slope: Tensor, K: int, i: int) -> float:
    own = symbols[torch.arange(len(symbols)), run.weights[-1][:, i, -1].argmax(-1)]
    added = run.contributions[-1][:, i, -1] @ slope.T
    lead = added.gather(1, own[:, None])[:, 0] - added.mean(1)
    return float(lead.mean() / run.output[:, -K:].std(1).mean().clamp(min=1e-12))


def _eigenvalues(engine: Engine, X: Tensor, K: int, slope: Tensor, i: int) -> float:
    """Symbols enter as the mean difference that each makes to the embedded first token, carried up by the blocks."""
    place = torch.zeros(len(X), dtype=torch.long)
    last, clean = engine.layers - 1, engine.run(X)
    rows = []
    for k in range(K):
        x = held(engine, _with_symbol(X, K, place, torch.full_like(place, k)), clean, last)
        rows.append(_fetched(engine, last, i, x[:, 0].mean(0, keepdim=True))[0] @ slope.T)
    table = torch.stack(rows)
    values = torch.linalg.eigvals((table - table.mean(0)).double())
    return float(values.real.sum() / values.abs().sum().clamp(min=1e-12))
