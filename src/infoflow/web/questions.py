"""What the page may ask: one typed question per verb, read from JSON with the sentences of the command line."""

import dataclasses
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from infoflow import arguments
from infoflow.arguments import shown
from infoflow.errors import InfoFlowError, unknown

LONGEST_WORD = 400  # characters of a target's or an architecture's spelling
LONGEST_FLOW = 64  # tokens of a picture
LONGEST_BUILT = 512  # tokens of an attention map

Tokens = list[list[float]]


@dataclass(frozen=True)
class Targets:
    """The named targets."""


@dataclass(frozen=True)
class Trace:
    """Information sets of one input: `tokens`, or `T` tokens drawn with `seed`."""

    target: str
    arch: str
    tokens: Tokens | None = None
    T: int | None = None
    seed: int = 0
    ties: Literal["first", "last", "all"] = "first"


@dataclass(frozen=True)
class Measure(Trace):
    """The sets of a network for the same input, measured beside the predicted ones: built, or trained for seconds."""

    weights: Literal["built", "trained"] = "built"


@dataclass(frozen=True)
class Predict:
    """The verdict, what changes with one head fewer, and the exponents against the length."""

    target: str
    arch: str
    T: int
    eps: float = 0.01


@dataclass(frozen=True)
class Plan:
    """The cheapest architectures."""

    target: str
    T: int
    max_layers: int = 6
    max_heads: int = 8


@dataclass(frozen=True)
class Forecast:
    """The error training will end at."""

    target: str
    arch: str
    T: int
    epochs: int = 60


@dataclass(frozen=True)
class Build:
    """Explicit weights with a certificate."""

    target: str
    T: int
    eps: float = 0.01


@dataclass(frozen=True)
class Certify(Build):
    """The bound of the built network again from its tensors, attacked for some seconds."""

    seconds: float = 2.0


@dataclass(frozen=True)
class Attention(Build):
    """The attention of the built network on an input drawn with `seed`; layers and heads from 1."""

    seed: int = 0
    layer: int = 1
    head: int = 1


@dataclass(frozen=True)
class Surface(Build):
    """The error of the built network while one or two numbers of an input move over the box."""

    seed: int = 0


@dataclass(frozen=True)
class Network(Build):
    """The built network as a safetensors file."""


@dataclass(frozen=True)
class Refute:
    """Two inputs that a small one-layer model cannot tell apart."""

    target: str
    arch: str
    T: int
    weights: Literal["random", "trained", "built"] = "random"
    seed: int = 0
    seconds: float = 12.0


@dataclass(frozen=True)
class Book:
    """Every statement of the papers with its status and its last recorded check."""


@dataclass(frozen=True)
class Check:
    """Run the check of one statement now."""

    id: str


@dataclass(frozen=True)
class Lab:
    """The recorded tables of the papers."""


@dataclass(frozen=True)
class Heads:
    """Models whose heads were probed: those recorded, and `probe.json` files of the chosen folder."""

    model: str | None = None


def read(kind: type, payload: Any) -> Any:
    """The question a JSON object asks, every field of its own type; a wrong one is refused by name."""
    if not isinstance(payload, dict):
        raise InfoFlowError(f"expected a JSON object of fields, got {shown(payload)}.")
    known, hints = {field.name: field for field in dataclasses.fields(kind)}, _hints(kind)
    for name in payload:
        if name not in known:
            raise unknown("field", name, list(known)) if known else InfoFlowError(f"expected no field, got {name!r}.")
    for name, field in known.items():
        if name not in payload and field.default is dataclasses.MISSING:
            raise InfoFlowError(f"expected the field {name}, got none.")
    return kind(**{name: _typed(name, value, hints[name]) for name, value in payload.items()})


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _typed(name: str, value: Any, kind: Any) -> Any:
    options = get_args(kind)
    if type(None) in options:
        if value is None:
            return None
        kind = next(option for option in options if option is not type(None))
    if get_origin(kind) is Literal:
        return arguments.choice(name, value, get_args(kind))
    if kind is int:
        return arguments.integer(name, value, least=0)
    if kind is float:
        return arguments.number(name, value)
    if kind is str:
        return _word(name, value)
    return _tokens(name, value)


def _word(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > LONGEST_WORD:
        raise InfoFlowError(f"expected {name} to be text of at most {LONGEST_WORD} characters, got {shown(value)}.")
    return value


def _tokens(name: str, value: Any) -> Tokens:
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value) or not value:
        raise InfoFlowError(f"expected {name} as rows like [[0,-1],[0.7,0.7]], got {shown(value)}.")
    if len(value) > LONGEST_FLOW or len({len(row) for row in value}) > 1 or len(value[0]) > LONGEST_FLOW:
        raise InfoFlowError(f"expected at most {LONGEST_FLOW} rows of one length in {name}, got {shown(value)}.")
    return [[arguments.number(f"every number of {name}", number) for number in row] for row in value]


def length(T: int, most: int, why: str) -> int:
    """Lengths that the page shows; the command line takes longer ones."""
    return arguments.integer(f"T ({why})", T, 1, most)


def schema(kind: type) -> dict[str, Any]:
    """The fields of a question as JSON Schema."""
    properties, required = {}, []
    for field in dataclasses.fields(kind):
        found = _schema(_hints(kind)[field.name])
        if field.default is dataclasses.MISSING:
            required.append(field.name)
        else:
            found = {**found, "default": field.default}
        properties[field.name] = found
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _schema(kind: Any) -> dict[str, Any]:
    options = get_args(kind)
    if type(None) in options:
        inner = _schema(next(option for option in options if option is not type(None)))
        return {"anyOf": [inner, {"type": "null"}]}
    if get_origin(kind) is Literal:
        return {"enum": list(options)}
    if kind is int:
        return {"type": "integer", "minimum": 0}
    if kind is float:
        return {"type": "number"}
    if kind is str:
        return {"type": "string", "maxLength": LONGEST_WORD}
    row = {"type": "array", "items": {"type": "number"}, "maxItems": LONGEST_FLOW}
    return {"type": "array", "items": row, "minItems": 1, "maxItems": LONGEST_FLOW}
