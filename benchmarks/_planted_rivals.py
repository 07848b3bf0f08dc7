"""Other people's methods on planted networks, each as its paper has it, on the graph of heads.

    ablation            the effect of a head set to zero, or to its mean over documents
    causal gating       gates on the heads, learned so that few stay open and the output stays (zero behind a shut gate)
    EAP, EAP-IG         attribution patching: the gradient of the output at a receiver's input times the change of the
                        sender's contribution; IG averages gradients over inputs between the two (arXiv 2403.17806)
    ACDC                edges removed from the output down while the error stays small (arXiv 2304.14997)
    routes              information-flow routes: shares of the contributions, followed down (arXiv 2403.00824)

Feed-forward blocks have no skip here, so they belong to the edges: an edge's change passes through them.
"""

from functools import partial

import torch
from torch import Tensor

from _planted_effects import effect
from infoflow.nn import attention
from infoflow.nn.transformer import _heads
from infoflow.probes.benchmark.engine import Engine, Pass, spread
from infoflow.probes.benchmark.truth import OUT, Edge, Node

IG_STEPS = 5
GATE_STEPS, GATE_RATE, GATE_PRICE = 40, 0.3, 0.02
ACDC_BOUND = 1e-3  # an edge goes when its removal raises the error by less


@torch.no_grad()
def ablation(engine: Engine, clean: Pass, mean: bool) -> dict[Node, float]:
    found = {}
    for l, i in engine.nodes():
        c = clean.contributions[l].clone()
        c[:, i] = c[:, i].mean(0) if mean else 0.0
        found[l, i] = effect(engine.finish(l, clean.streams[l], c) - clean.output, clean)
    return found


def causal_gating(engine: Engine, clean: Pass, X: Tensor) -> dict[Node, float]:
    """Sigmoid gates by gradient descent on NMSE + price times the mean gate."""
    nodes, size = engine.nodes(), max(spread(clean.output), 1e-30)
    logits = torch.full((len(nodes),), 2.0)
    first = [nodes.index((l, 0)) for l in range(engine.layers)]
    speed = torch.zeros_like(logits)
    for _ in range(GATE_STEPS):
        logits.requires_grad_(True)
        gates = torch.sigmoid(logits)
        run = engine.run(X, partial(_gated, gates, first, engine.heads))
        loss = (run.output - clean.output).square().sum(-1).mean() / size + GATE_PRICE * gates.mean() * len(nodes)
        (slope,) = torch.autograd.grad(loss, logits)
        speed = 0.8 * speed + slope
        logits = (logits - GATE_RATE * speed / speed.norm().clamp(min=1e-9) * len(nodes) ** 0.5).detach()
    return {node: float(gate) for node, gate in zip(nodes, torch.sigmoid(logits), strict=True)}


def _gated(gates: Tensor, first: list[int], heads: tuple[int, ...], l: int, c: Tensor) -> Tensor:
    return c * gates[first[l] : first[l] + heads[l]].view(1, -1, 1, 1)


def _own_streams(engine: Engine, l: int, copies: Tensor, first: int = 0) -> Tensor:
    """Contributions (B, h, Q, E) of the heads of layer l from `first` on, each of which reads its own copy (h, B, rows,
    E) of the stream."""
    layer = engine.layer(l)
    T, cls_only = copies.shape[-2] - 1, l == engine.layers - 1
    found = []
    for i, x in enumerate(copies, first):
        asked = x[:, T:] if cls_only else x
        assert layer.value is not None
        q, k, v = (
            _heads(y, w[i : i + 1]) for y, w in ((asked, layer.query), (x[:, :T], layer.key), (x[:, :T], layer.value))
        )
        values, _ = attention(q, k, v, layer.beta, layer._visible(asked.shape[-2], T, cls_only, x.device))
        n = layer.query.shape[1]
        found.append(values[:, 0] @ layer.output[:, i * n : (i + 1) * n].T)
    return torch.stack(found, 1)


def attribution(engine: Engine, clean: Pass, other: Pass, integrated: bool) -> dict[Edge, float]:
    """E(a^2) / (2 Var y), a the attributed change of the output towards that of the other input (a scalar, as the
    papers' differences of two logits are; with one output its change itself)."""
    points = [(k + 0.5) / IG_STEPS for k in range(IG_STEPS)] if integrated else [0.0]
    towards = other.output - clean.output
    towards = towards / towards.norm(dim=-1, keepdim=True).clamp(min=1e-30)
    totals: dict[Edge, Tensor] = {}
    for point in points:
        start = clean.streams[0] + point * (other.streams[0] - clean.streams[0])
        for edge, value in _slopes(engine, clean, other, start, towards).items():
            totals[edge] = totals.get(edge, torch.zeros(())) + value / len(points)
    size = 2 * max(spread(clean.output), 1e-30)
    return {edge: float(value.double().square().mean()) / size for edge, value in totals.items()}


def _slopes(engine: Engine, clean: Pass, other: Pass, start: Tensor, towards: Tensor) -> dict[Edge, Tensor]:
    """Per edge and document: gradient at the receiver's own copy of the stream, pulled back to the sender.

    All receivers of a layer are pulled back together, each as one more group of documents.
    """
    x, copies, streams, sums = start, [], [], []
    with torch.enable_grad():
        for l in range(engine.layers):
            copy = x.unsqueeze(0).expand(engine.heads[l], *x.shape).clone().detach().requires_grad_(True)
            held = copy - copy.detach() + x  # the same numbers; gradients reach both the copy and what made x
            c = _own_streams(engine, l, held)
            copies.append(copy)
            streams.append(x)
            sums.append(c.sum(1))
            x = engine.behind(l, x, c.sum(1))
        slopes = torch.autograd.grad((x * towards).sum(), copies)
    found: dict[Edge, Tensor] = {}
    receivers = [(m, [(m, j) for j in range(engine.heads[m])], slopes[m]) for m in range(engine.layers)]
    receivers.append((engine.layers, [OUT], towards[None]))
    for m, nodes, slope in receivers:
        for l in range(m - 1, -1, -1):
            slope = _pulled(engine, l, streams[l].detach(), sums[l].detach(), slope)
            change = other.contributions[l] - clean.contributions[l]  # (B, h, Q, E)
            value = torch.einsum("rbqe,bhqe->rhb", slope[:, :, -change.shape[2] :], change)
            for number, receiver in enumerate(nodes):
                for i in range(engine.heads[l]):
                    found[(l, i), receiver] = value[number, i]
    return found


def _pulled(engine: Engine, l: int, x: Tensor, added: Tensor, slope: Tensor) -> Tensor:
    """The gradients (receivers, B, ...) in front of layer l's block, with its heads held."""
    many = len(slope)
    with torch.enable_grad():
        x = x.repeat(many, 1, 1).requires_grad_(True)
        (back,) = torch.autograd.grad(engine.behind(l, x, added.repeat(many, 1, 1)), x, slope.flatten(0, 1))
    return back.view(many, -1, *back.shape[1:])


@torch.no_grad()
def acdc(engine: Engine, clean: Pass, other: Pass, bound: float = ACDC_BOUND) -> dict[Edge, float]:
    """The rise of the error (over twice the variance) when each edge was tried; edges that went are 0 below `bound`."""
    graph = _Graph(engine, clean, other)
    found: dict[Edge, float] = {}
    error = 0.0
    for receiver in [OUT, *reversed(engine.nodes())]:
        top = engine.layers if receiver == OUT else receiver[0]
        for sender in (node for node in reversed(engine.nodes()) if node[0] < top):
            changed, output = graph.without(sender, receiver)
            tried = effect(output - clean.output, clean)
            found[sender, receiver] = max(tried - error, 0.0)
            if tried - error < bound:
                error = tried
                graph.remove(sender, receiver, changed, output)
    return found


class _Graph:
    """The network over the edges that are left; removed ones carry the other input's contributions.

    Edges go from the output down, so that layers below the receiver in question are still clean; after a removal only
    heads that read a changed head are run again.
    """

    def __init__(self, engine: Engine, clean: Pass, other: Pass) -> None:
        self.engine, self.clean, self.other = engine, clean, other
        self.now = [c.clone() for c in clean.contributions]
        self.output = clean.output
        self.removed: dict[Node, set[Node]] = {node: set() for node in (OUT, *engine.nodes())}

    def without(self, sender: Node, receiver: Node) -> tuple[dict[Node, Tensor], Tensor]:
        """The contributions that change, and the output, when one more edge goes."""
        engine, changed = self.engine, dict[Node, Tensor]()
        gone = self.removed[receiver] | {sender}
        if receiver == OUT:
            return changed, self._seen(gone, engine.layers, engine.layers, changed)
        changed[receiver] = self._head(receiver, gone, receiver[0], changed)
        for node in engine.nodes():
            if node[0] > receiver[0] and changed.keys() - self.removed[node]:
                changed[node] = self._head(node, self.removed[node], receiver[0], changed)
        if not changed.keys() - self.removed[OUT]:
            return changed, self.output
        return changed, self._seen(self.removed[OUT], engine.layers, receiver[0], changed)

    def remove(self, sender: Node, receiver: Node, changed: dict[Node, Tensor], output: Tensor) -> None:
        self.removed[receiver].add(sender)
        self.output = output
        for (l, i), c in changed.items():
            self.now[l][:, i] = c

    def _head(self, node: Node, gone: set[Node], lowest: int, changed: dict[Node, Tensor]) -> Tensor:
        l, i = node
        x = self._seen(gone, l, lowest, changed)
        return _own_streams(self.engine, l, x[None], first=i)[:, 0]

    def _seen(self, gone: set[Node], top: int, lowest: int, changed: dict[Node, Tensor]) -> Tensor:
        """The stream in front of layer `top` (or the output) of a receiver that lost these edges."""
        first = min((*(l for l, _ in gone), lowest, top))
        x = self.clean.streams[first] if first < self.engine.layers else self.output
        for l in range(first, top):
            c = self.now[l].clone()
            for node, value in changed.items():
                if node[0] == l:
                    c[:, node[1]] = value
            swapped = [i for k, i in gone if k == l]
            c[:, swapped] = self.other.contributions[l][:, swapped]
            x = self.engine.behind(l, x, c.sum(1))
        return x


@torch.no_grad()
def routes(engine: Engine, clean: Pass) -> tuple[dict[Node, float], dict[Edge, float]]:
    """Heads and edges by the share of the output's relevance that flows through them.

    A term v of a sum y has importance max(0, |y|_1 - |y - v|_1), normalised over the terms at each token.
    """
    shares = [_shares(engine, clean, l) for l in range(engine.layers)]
    heads: dict[Node, float] = dict.fromkeys(engine.nodes(), 0.0)
    edges: dict[Edge, float] = {}
    B, T = clean.weights[0].shape[0], clean.weights[0].shape[-1]
    start = torch.zeros(B, T + 1)
    start[:, T] = 1.0
    arriving: dict[Node, Tensor] = {OUT: start}
    for receiver in [OUT, *reversed(engine.nodes())]:
        flow = arriving.get(receiver)
        if flow is None:
            continue
        for l in range((engine.layers if receiver == OUT else receiver[0]) - 1, -1, -1):
            by_key, kept = shares[l]
            rows = flow[:, -by_key.shape[2] :]
            for i in range(engine.heads[l]):
                through = torch.einsum("bq,bqk->bk", rows, by_key[:, i])
                edges[(l, i), receiver] = float(through.sum(1).mean())
                heads[l, i] += edges[(l, i), receiver]
                more = torch.cat([through, torch.zeros(B, 1)], 1)
                arriving[l, i] = arriving.get((l, i), torch.zeros(B, T + 1)) + more
            flow = flow.clone()
            flow[:, -kept.shape[1] :] = rows * kept
    return heads, edges


def _shares(engine: Engine, clean: Pass, l: int) -> tuple[Tensor, Tensor]:
    """Shares of every (head, key) (B, h, Q, K) and of the residual stream (B, Q) in x'_l."""
    layer, x = engine.layer(l), clean.streams[l]
    T, h = x.shape[-2] - 1, engine.heads[l]
    assert layer.value is not None
    n = layer.query.shape[1]
    out = layer.output.view(-1, h, n)
    moved = torch.einsum("bhkn,ehn->bhke", _heads(x[:, :T], layer.value), out)  # what a key would bring in full
    asked = x[:, T:] if l == engine.layers - 1 else x
    y = asked + clean.contributions[l].sum(1)
    size = y.abs().sum(-1)
    by_key = torch.stack(
        [
            (
                size[..., None] - (y[:, :, None] - clean.weights[l][:, i, ..., None] * moved[:, i, None]).abs().sum(-1)
            ).clamp(min=0)
            for i in range(h)
        ],
        1,
    )
    kept = (size - (y - asked).abs().sum(-1)).clamp(min=0)
    total = (by_key.sum((1, 3)) + kept).clamp(min=1e-12)
    return by_key / total[:, None, :, None], kept / total
