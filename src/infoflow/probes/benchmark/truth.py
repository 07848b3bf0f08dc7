"""What is known about a planted network: every head's job, who feeds whom, directions of the stream, errors.

Layers and heads are 1-based in the file and 0-based here. A head's `role` is

    computes   something that reaches the output
    decoy      the pattern of a head that computes, written where nobody reads
    backup     read only when the head it stands in for (`stands_in`) writes nothing
    idle       writes nothing

An edge says that a head reads, through feed-forward blocks alone, what another wrote; `OUT` is the read-out.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from infoflow.errors import InfoFlowError

Node = tuple[int, int]  # (layer, head), 0-based
OUT: Node = (-1, -1)
Edge = tuple[Node, Node]
ROLES = ("computes", "decoy", "backup", "idle")


@dataclass(frozen=True)
class Head:
    """`labels` are the modes that count as right, the first one is the truth for counting; none: the label was dropped,
    because the disguise changed the head."""

    labels: tuple[str, ...]
    job: str
    role: str
    stands_in: Node | None = None
    agreement: float = 1.0  # of interchange interventions with the network before the disguise
    says: str = ""  # of a head that moves symbols to their logits: copying, suppressing or translating


@dataclass(frozen=True)
class Direction:
    """A quantity of one layer's stream (before its attention) and the vector along which it is written."""

    layer: int
    name: str
    vector: Float[np.ndarray, " E"]


@dataclass(frozen=True)
class Truth:
    heads: dict[Node, Head]
    edges: tuple[Edge, ...]
    directions: tuple[Direction, ...]
    error: dict[str, float | None] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)  # target, T, heads, family, disguise, strength, ...

    @property
    def matter(self) -> set[Node]:
        return {node for node, head in self.heads.items() if head.role == "computes"}

    def to_json(self) -> dict[str, Any]:
        return {
            "version": 1,
            **self.about,
            "error": self.error,
            "heads": [
                {"layer": l + 1, "head": i + 1, "labels": list(head.labels), "job": head.job, "role": head.role}
                | ({"stands_in": _plain(head.stands_in)} if head.stands_in else {})
                | ({"says": head.says} if head.says else {})
                | {"agreement": head.agreement}
                for (l, i), head in sorted(self.heads.items())
            ],
            "edges": [[_plain(a), _plain(b)] for a, b in sorted(self.edges)],
            "directions": [
                {"layer": d.layer + 1, "name": d.name, "vector": [float(x) for x in d.vector]} for d in self.directions
            ],
        }

    @classmethod
    def from_json(cls, payload: Any) -> "Truth":
        """A truth file from outside: every part of its type, or one sentence."""
        try:
            if payload["version"] != 1:
                raise InfoFlowError(f"expected a truth file of version 1, got {payload['version']!r}.")
            heads = {_node([h["layer"], h["head"]]): _head(h) for h in payload["heads"]}
            edges = tuple((_node(a), _node(b)) for a, b in payload["edges"])
            directions = tuple(
                Direction(int(d["layer"]) - 1, str(d["name"]), np.array(d["vector"], dtype=np.float64))
                for d in payload["directions"]
            )
            rest = {k: v for k, v in payload.items() if k not in ("version", "error", "heads", "edges", "directions")}
            float(rest["strength"]), rest["family"], rest["disguise"]  # what scores are gathered by
            return cls(heads, edges, directions, dict(payload["error"]), rest)
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise InfoFlowError(f"expected the truth of a planted network, got something else ({error!r}).") from None


def _plain(node: Node) -> Any:
    return "out" if node == OUT else [node[0] + 1, node[1] + 1]


def _node(value: Any) -> Node:
    return OUT if value == "out" else (int(value[0]) - 1, int(value[1]) - 1)


def _head(payload: dict[str, Any]) -> Head:
    if payload["role"] not in ROLES:
        raise ValueError(payload["role"])
    place = payload.get("stands_in")
    labels = tuple(str(label) for label in payload["labels"])
    stands, told = _node(place) if place else None, str(payload.get("says", ""))
    return Head(labels, str(payload["job"]), payload["role"], stands, payload["agreement"], told)


def join(first: Truth, second: Truth, heads: tuple[int, ...], embed: tuple[int, ...]) -> Truth:
    """The truth of two networks side by side: the second's heads and directions stand behind the first's."""

    def moved(node: Node) -> Node:
        return node if node == OUT else (node[0], node[1] + heads[node[0]])

    def behind(head: Head) -> Head:
        return head if head.stands_in is None else replace(head, stands_in=moved(head.stands_in))

    return Truth(
        {**first.heads, **{moved(n): behind(h) for n, h in second.heads.items()}},
        (*first.edges, *((moved(a), moved(b)) for a, b in second.edges)),
        (
            *first.directions,
            *(replace(d, vector=np.concatenate([np.zeros(embed[d.layer]), d.vector])) for d in second.directions),
        ),
        {**first.error, **second.error},
        {**first.about, **second.about},
    )


def widened(truth: Truth, embed: tuple[int, ...]) -> Truth:
    """Directions with zeros up to the size of the stream."""
    return replace(
        truth,
        directions=tuple(
            replace(d, vector=np.concatenate([d.vector, np.zeros(embed[d.layer] - len(d.vector))]))
            for d in truth.directions
        ),
    )
