"""Write circuits into a Transformer, with its truth: directions by name, heads from their forms, blocks from pieces."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from infoflow.compiler.blocks import Block, Piece, choose, flag_choice, units
from infoflow.compiler.compile import write_block
from infoflow.nn import Transformer, TransformerConfig
from infoflow.probes.benchmark.circuits import TOLERANCE, Circuit, Symbols, averages, forms, labels_of, said, says
from infoflow.probes.benchmark.truth import OUT, Direction, Edge, Head, Node, Truth

WEIGHTS = 4.0  # largest coefficient of a unit: larger ones are shared by several
ROOM = 1.05  # carried numbers stay below this
SHUT = 8.0  # what a flag of 1 takes from the arguments of a gated product: its units are then at -1 within 4e-6


@dataclass(frozen=True)
class Place:
    """Where the heads of one circuit stand and write."""

    node: Node
    writes: int  # coordinate of r(t), or of what the CLS reads
    flag: int | None = None  # coordinate of the 1 a head with a backup fetches


class Planting:
    """The network of some circuits: one object while it is written."""

    def __init__(self, circuits: list[Circuit], written: Symbols, layers: int, encoder: str, causal: bool) -> None:
        self.circuits, self.written, self.layers, self.causal = circuits, written, layers, causal
        self.encoder_kind = encoder
        self.logits = forms(circuits, written, layers)
        self.backed = {c.stands_in for c in circuits if c.role == "backup"}
        self.spoken = written.count if any(c.says for c in circuits) else 0  # logits of symbols
        self.names = [self._names(l) for l in range(layers)]
        self.index = [{name: j for j, name in enumerate(names)} for names in self.names]
        self.nodes = self._nodes()
        self.collects = any(c.layer < layers - 1 and c.adds for c in circuits)

    def _nodes(self) -> list[Node]:
        used = [0] * self.layers
        found = []
        for c in self.circuits:
            found.append((c.layer, used[c.layer]))
            used[c.layer] += 1
        return found

    def _names(self, layer: int) -> list[str]:
        K, P = self.written.code.shape[1], self.written.place.shape[1]
        names = [f"symbol[{k + 1}]" for k in range(K)] + [f"place[{p + 1}]" for p in range(P)] + ["one", "v"]
        for n, c in enumerate(self.circuits):
            if c.layer < layer and c.layer < self.layers - 1 and c.adds:
                names.append(f"circuit{n + 1}.product")
            if c.kind == "before" and c.layer <= layer <= self._told_up_to(n):
                names += self._told(n)
            elif c.layer == layer and not c.says and c.kind != "before":
                names.append(f"circuit{n + 1}.fetched")
                names += [f"circuit{n + 1}.flag"] if n in self.backed else []
        return [*names, "average", *self._says()] if layer == self.layers - 1 else names

    def _told(self, n: int) -> list[str]:
        """The directions of the symbol in front, which head n tells."""
        return [f"circuit{n + 1}.before[{k + 1}]" for k in range(self.written.count)]

    def _told_up_to(self, n: int) -> int:
        return max((c.layer for c in self.circuits if c.reads == n), default=0)

    def _says(self) -> list[str]:
        return [f"says[{k + 1}]" for k in range(self.spoken)]

    def heads(self) -> tuple[int, ...]:
        count = [sum(c.layer == l for c in self.circuits) for l in range(self.layers)]
        count[-1] += self.collects
        return tuple(max(h, 1) for h in count)

    def gains(self, tokens: np.ndarray, spread: float) -> list[float]:
        """So that each circuit's part of the output has its share of `spread`, the target's standard deviation."""
        found = []
        for c, logits in zip(self.circuits, self.logits, strict=True):
            if c.says:
                deviation = float(np.sqrt(said(c, logits, tokens, self.causal).var(0).sum()))
            else:
                deviation = float(averages(logits, tokens, self.causal).std()) if c.adds else np.inf
            found.append(c.share * spread / max(deviation, 1e-6))
        return found

    def function(self, tokens: np.ndarray, gains: list[float]) -> np.ndarray:
        """What the circuits compute exactly: (number, 1 + logits)."""
        y = np.zeros((len(tokens), 1 + self.spoken))
        for gain, c, logits in zip(gains, self.circuits, self.logits, strict=True):
            if c.says:
                y[:, 1:] += gain * said(c, logits, tokens, self.causal)
            elif c.adds:
                y[:, 0] += gain * averages(logits, tokens, self.causal)
        return y

    @torch.no_grad()
    def write(self, gains: list[float]) -> Transformer:
        blocks = [self._block(l) for l in range(self.layers - 1)] + [self._readout(gains)]
        first = self._encoder() if self.encoder_kind == "mlp" else None
        ranks = [self._factors(n)[0].shape[0] for n in range(len(self.circuits))]
        moved = [self.written.count if c.says or c.kind == "before" else 2 for c in self.circuits]  # value rows
        size = [
            max([2, *(max(r, m) for r, m, c in zip(ranks, moved, self.circuits, strict=True) if c.layer == l)])
            for l in range(self.layers)
        ]
        network = Transformer(
            TransformerConfig(
                dim=self.written.count + 1,
                outputs=1 + self.spoken,
                heads=self.heads(),
                head_dims=tuple(size),
                widths=tuple(block.width(WEIGHTS) + self._extra(l) for l, block in enumerate(blocks)),
                scales=(1.0,) * self.layers,
                encoder="mlp" if first else "linear",
                encoder_width=first.width(WEIGHTS) if first else 0,
                positions="additive",
                length=self.written.T,
                mask="causal" if self.causal else "none",
                streams=tuple(len(names) for names in self.names),
            )
        ).double()
        self._embed(network, first)
        for n, gain in enumerate(gains):
            self._head(network, n, gain)
        if self.collects:
            self._collector(network, gains)
        for l, block in enumerate(blocks):
            ffn: Any = network.ffns[l] if l < self.layers - 1 else network.readout
            outputs = np.arange(len(self.names[l + 1])) if l < self.layers - 1 else np.arange(1 + self.spoken)
            write_block(ffn, block, WEIGHTS, np.arange(len(self.names[l])), outputs)
            if l < self.layers - 1:
                self._gated(ffn, l, block.width(WEIGHTS))
        return network.requires_grad_(False)

    def _embed(self, network: Transformer, first: Block | None) -> None:
        K, P, count = self.written.code.shape[1], self.written.place.shape[1], self.written.count
        encoder: Any = network.encoder
        if first is not None:
            write_block(encoder, first, WEIGHTS, np.arange(count + 1), np.arange(len(self.names[0])))
        else:
            encoder.maps[0].weight[:K, :count] = torch.from_numpy(self.written.code.T.copy())
            encoder.maps[0].weight[self.index[0]["v"], count] = 1.0
            encoder.maps[0].bias[self.index[0]["one"]] = 1.0
        assert network.position is not None
        assert network.cls_token is not None
        network.position[:, K : K + P] = torch.from_numpy(self.written.place)
        network.cls_token[self.index[0]["one"]] = 1.0

    def _encoder(self) -> Block:
        count = self.written.count
        block = Block(count + 1, len(self.names[0]))
        for j in range(count):
            for k in np.flatnonzero(self.written.code[j]):
                gain = float(self.written.code[j, k])
                piece = Piece(int(k), gain, np.eye(count + 1)[j][None], (0.0,), (1.0,), (1.0,))
                block.pieces.append(replace(piece, choice=flag_choice(gain, WEIGHTS)))
        _carry(block, self.index[0]["v"], np.eye(count + 1)[count])
        block.constants[self.index[0]["one"]] = 1.0
        return block

    def _factors(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Query and key rows over the first directions of the layer (symbols, places, one)."""
        U, S, V = np.linalg.svd(self.logits[n].matrix)
        rank = max(1, int((S / max(S[0], 1e-12) > 1e-9).sum()))
        root = np.sqrt(S[:rank])[:, None]
        return root * U.T[:rank], root * V[:rank]

    def _head(self, network: Transformer, n: int, gain: float) -> None:
        (l, h), c = self.nodes[n], self.circuits[n]
        attention: Any = network.attentions[l]
        query, key = self._factors(n)
        told = [] if c.reads is None else [self.index[l][name] for name in self._told(c.reads)]
        attention.query[h, : len(query), : query.shape[1]] = torch.from_numpy(query)
        attention.key[h, : len(key), [*range(self.logits[n].size), *told]] = torch.from_numpy(key)
        if c.says or c.kind == "before":
            self._moves(attention, n, gain)
            return
        attention.value[h, 0, self.index[l]["v"]] = 1.0
        size = attention.query.shape[1]
        attention.output[self.index[l][f"circuit{n + 1}.fetched"], h * size] = 1.0
        if n in self.backed:
            attention.value[h, 1, self.index[l]["one"]] = 1.0
            attention.output[self.index[l][f"circuit{n + 1}.flag"], h * size + 1] = 1.0

    def _moves(self, attention: Any, n: int, gain: float) -> None:
        """A head that fetches symbols: for the tokens' own directions, or as logits."""
        (l, h), c = self.nodes[n], self.circuits[n]
        K, size = self.written.count, attention.query.shape[1]
        table = gain * says(self.logits[n], c).T if c.says else np.eye(K)
        rows = [self.index[l][name] for name in (self._says() if c.says else self._told(n))]
        attention.value[h, :K, : self.written.code.shape[1]] = torch.from_numpy(np.linalg.pinv(self.written.code).T)
        attention.output[rows, h * size : h * size + K] = torch.from_numpy(table)

    def _collector(self, network: Transformer, gains: list[float]) -> None:
        """The head that averages the products for the CLS, each with its gain."""
        l = self.layers - 1
        attention: Any = network.attentions[l]
        h, size = attention.query.shape[0] - 1, attention.query.shape[1]
        for n, gain in enumerate(gains):
            name = f"circuit{n + 1}.product"
            if name in self.index[l]:
                attention.value[h, 0, self.index[l][name]] = gain
        attention.output[self.index[l]["average"], h * size] = 1.0

    def _block(self, layer: int) -> Block:
        here, after = self.index[layer], self.index[layer + 1]
        block = Block(len(self.names[layer]), len(self.names[layer + 1]))
        unit = np.eye(len(self.names[layer]))
        for name in self.names[layer]:
            if name.startswith(("symbol", "place")) or ("before" in name and name in after):
                self._copy(block, after[name], unit[here[name]])
            elif name == "v" or (name.endswith("product") and name in after):
                _carry(block, after[name], unit[here[name]])
        block.constants[after["one"]] = 1.0
        for n, c in enumerate(self.circuits):
            if c.layer == layer and c.adds:
                factors = np.array([unit[here["v"]], unit[here[f"circuit{n + 1}.fetched"]]])
                block.pieces.append(_product(after[f"circuit{n + 1}.product"], factors))
        return block

    def _copy(self, block: Block, output: int, row: np.ndarray) -> None:
        """Directions that hold 0 or 1 are carried exactly, others within the tolerance."""
        if not self.written.exact:
            _carry(block, output, row, 2.0)
            return
        piece = Piece(output, 1.0, row[None], (0.0,), (1.0,), (1.0,))
        block.pieces.append(replace(piece, choice=flag_choice(1.0, WEIGHTS)))

    def _backups(self, layer: int) -> list[tuple[int, int]]:
        return [
            (n, c.stands_in)
            for n, c in enumerate(self.circuits)
            if c.role == "backup" and c.layer == layer and c.stands_in is not None
        ]

    def _extra(self, layer: int) -> int:
        """Units of the gated products of this block."""
        if layer == self.layers - 1:
            return 0
        row = np.zeros((2, 1))
        choice = _product(0, row).choice
        assert choice is not None
        return len(self._backups(layer)) * (choice.neurons + 64)

    def _gated(self, ffn: Any, layer: int, used: int) -> None:
        """r'(t) v(t) where the flag of the head that is stood in for is 0, nothing where it is 1.

        Every unit tanh(a) of the product becomes tanh(a - SHUT flag); with the flag at 1 they all are -1 and a last
        group of units adds the sum of their coefficients again.
        """
        here, after = self.index[layer], self.index[layer + 1]
        unit = np.eye(len(self.names[layer]))
        first, second = ffn.maps
        for n, main in self._backups(layer):
            output, flag = after[f"circuit{main + 1}.product"], here[f"circuit{main + 1}.flag"]
            factors = np.array([unit[here["v"]], unit[here[f"circuit{n + 1}.fetched"]]])
            hidden, biases, outputs = units(_product(output, factors))
            hidden[:, flag] -= SHUT
            back = replace(
                Piece(output, float(outputs.sum()), unit[flag][None], (0.0,), (1.0,), (1.0,)),
                choice=flag_choice(float(outputs.sum()), WEIGHTS),
            )
            more = units(back)
            hidden, biases, outputs = (
                np.concatenate(pair) for pair in zip((hidden, biases, outputs), more, strict=True)
            )
            span = slice(used, used + len(hidden))
            first.weight[span] = torch.from_numpy(hidden)
            first.bias[span] = torch.from_numpy(biases)
            second.weight[output, span] = torch.from_numpy(outputs)
            used += len(hidden)

    def _readout(self, gains: list[float]) -> Block:
        l = self.layers - 1
        block = Block(len(self.names[l]), 1 + self.spoken)
        row, reach = np.zeros(len(self.names[l])), self._reach(gains, spoken=False)
        for n, (c, gain) in enumerate(zip(self.circuits, gains, strict=True)):
            if c.layer == l and c.adds:
                row[self.index[l][f"circuit{n + 1}.fetched"]] = gain
        if self.collects:
            row[self.index[l]["average"]] = 1.0
        _read(block, 0, row, reach)
        for k, name in enumerate(self._says()):
            _read(block, 1 + k, np.eye(len(row))[self.index[l][name]], self._reach(gains, spoken=True))
        return block

    def _reach(self, gains: list[float], spoken: bool) -> float:
        """How large the first output, or a logit, can be."""
        parts = [abs(g) for g, c in zip(gains, self.circuits, strict=True) if (bool(c.says) if spoken else c.adds)]
        return max(sum(parts), 1e-3)

    def bound(self, gains: list[float]) -> float | None:
        """|network - sum of gain times average|: the pieces' errors, each number carried through at most L blocks.

        None where symbols are superposed: their carried codes move the logits, which is measured instead.
        """
        if not self.written.exact:
            return None
        steps = self.layers + (self.encoder_kind == "mlp")
        off = steps * TOLERANCE  # of v, and of a carried product
        one = TOLERANCE + 2 * off * ROOM + off**2 + off
        first = self._reach(gains, spoken=False) * (one + 2 * TOLERANCE)
        return float(max(first, self._reach(gains, spoken=True) * 2 * TOLERANCE if self.spoken else 0.0))

    def truth(self, gains: list[float]) -> Truth:
        heads, edges = {}, []
        collector = (self.layers - 1, self.heads()[-1] - 1)
        for n, (c, logits) in enumerate(zip(self.circuits, self.logits, strict=True)):
            stands = None if c.stands_in is None else self.nodes[c.stands_in]
            job = f"circuit{n + 1}, {c.says or c.kind}: {logits.text}"
            heads[self.nodes[n]] = Head(labels_of(c, logits, self.causal), job, c.role, stands, says=c.says)
            if c.adds or c.says:
                edges.append((self.nodes[n], OUT if c.layer == self.layers - 1 else collector))
            if c.reads is not None:
                edges.append((self.nodes[c.reads], self.nodes[n]))
        if self.collects:
            heads[collector] = Head(("global",), "average of the products", "computes")
            edges.append((collector, OUT))
        for l, h in enumerate(self.heads()):
            for i in range(h):
                heads.setdefault((l, i), Head(("global",), "nothing", "idle"))
        return Truth(heads, tuple[Edge, ...](edges), self._directions(), {"planted_bound": self.bound(gains)})

    def _directions(self) -> tuple[Direction, ...]:
        """Every direction that holds something before the attention of its layer."""
        return tuple(
            Direction(l, name, np.eye(len(names))[j])
            for l, names in enumerate(self.names)
            for j, name in enumerate(names)
            if name == "v" or name.endswith("product")
        )


def _product(output: int, factors: np.ndarray) -> Piece:
    radii = (ROOM, ROOM)
    choice = choose(2, 1.0, radii, (1.0, 1.0), TOLERANCE, WEIGHTS, "chebyshev")
    return Piece(output, 1.0, factors, (0.0, 0.0), radii, (1.0, 1.0), choice)


def _carry(block: Block, output: int, row: np.ndarray, radius: float = ROOM) -> None:
    choice = choose(1, 1.0, (radius,), (1.0,), TOLERANCE, WEIGHTS, "chebyshev")
    block.pieces.append(Piece(output, 1.0, row[None], (0.0,), (radius,), (1.0,), choice))


def _read(block: Block, output: int, row: np.ndarray, reach: float) -> None:
    """output += row . x within 2 TOLERANCE of the largest value `reach`."""
    size = float(np.abs(row).max()) or 1.0
    piece = Piece(output, size, (row / size)[None], (0.0,), (reach * ROOM / size,), (1.0,))
    choice = choose(1, size, piece.radii, (1.0,), 2 * TOLERANCE * reach, WEIGHTS, "chebyshev")
    block.pieces.append(replace(piece, choice=choice))
