"""Ways to damage a saved network. A safetensors file is 8 bytes of length, a JSON header, then the tensors' bytes.

Every function takes a random generator and the file's bytes and returns other bytes; nothing here uses the project's
own reader or writer, so that files it would never write are made, too.
"""

import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

KEY = "infoflow"
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
KINDS = ("transformer", "codec", "memory_head", "exponential_head", "occupancy", "truncated_linear", "grid", "icgd",
         "recording", "memorizer", "context_map", "equivariant", "checkpoint", "lab_checkpoint", "nothing")  # fmt: skip
WORDS = ("tanh", "gelu", "relu", "sigmoid", "identity", "none", "causal", "additive", "augmented", "linear", "mlp",
         "two-layer", "one-layer-softmax", "quadratic", "paper", "closed", "midpoint", "squared", "logistic", "huber",
         "logcosh", "soft", "hard", "centre", "corner", "chebyshev", "plain", "occupancy", "", "\x00", "é" * 50,
         "x" * 5000)  # fmt: skip
NUMBERS: tuple[Any, ...] = (0, 1, -1, 2, 3, 7, 64, 1000, 10**6, 10**9, 2**31, 2**63, 10**18, 10**400, 0.0, -0.0, 0.5,
                            1e-3, 1e-12, 1e-300, 5e-324, 1e12, 1e100, 1e308, -1e308, 1.5, float("nan"),
                            float("inf"), float("-inf"))  # fmt: skip
TARGETS = ("pairwise_max:D=1,d=2", "pairwise_max:D=2,d=2,seed=1", "pairwise_max:D=3,d=2", "min_pair", "min_pair:d=2",
           "star:k=3,d=1", "star:k=9,d=1", "chain:length=3,d=2", "d_retrieval:D=2,d=1", "d_retrieval:D=2,d=2",
           "d_retrieval:D=3,d=1", "sum_of_maxima:D=2,d=2", "kth_largest:k=2", "triangle_center:d=1",
           "triangle_center:d=2", "pairwise_max:D=4000,d=2", "pairwise_max:D=1,d=100000", "nothing", "file.py:F",
           "pairwise_max:D=-1", "../../secret.py:F", "d_retrieval:D=2,d=1,sets=1..2/3..4")  # fmt: skip
FUNCTIONS = ("x11", "x11*x12", "1/x11", "exp(0-5000*x11^2)", "exp(exp(exp(x11)))", "log(x11)", "sqrt(x11)", "abs(x11)",
             "sin(1000*x11)", "(" * 200, "x11^100", "x99", "wave", "mean_product", "x11^-3", "tanh(50*x11)",
             "1e308*x11", "__import__('os')", "x11;x12")  # fmt: skip


class Broken(Exception):
    """The bytes are no longer a container that this kind of damage can open."""


def opened(data: bytes) -> tuple[dict[str, Any], bytes]:
    try:
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        if not isinstance(header, dict):
            raise ValueError
    except (ValueError, struct.error, RecursionError, MemoryError, OverflowError):
        raise Broken from None
    return header, data[8 + length :]


def closed(header: dict[str, Any], body: bytes) -> bytes:
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def own_header(header: dict[str, Any]) -> dict[str, Any]:
    try:
        found = json.loads(header["__metadata__"][KEY])
    except (KeyError, TypeError, ValueError, RecursionError):
        raise Broken from None
    if not isinstance(found, dict):
        raise Broken
    return found


def with_own(header: dict[str, Any], own: Any) -> dict[str, Any]:
    return {**header, "__metadata__": {**header["__metadata__"], KEY: json.dumps(own)}}


def tensor_names(header: dict[str, Any]) -> list[str]:
    return [name for name, about in header.items() if name != "__metadata__" and isinstance(about, dict)]


# bytes and bits -------------------------------------------------------------------------------------------------------


def bits(rng: np.random.Generator, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 9))):
        changed[int(rng.integers(len(changed)))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def body_bits(rng: np.random.Generator, data: bytes) -> bytes:
    """In the tensors alone, so that the container stays whole."""
    header, body = opened(data)
    if not body:
        raise Broken
    changed = bytearray(body)
    for _ in range(int(rng.integers(1, 4))):
        changed[int(rng.integers(len(changed)))] ^= 1 << int(rng.integers(8))
    return closed(header, bytes(changed))


def some_bytes(rng: np.random.Generator, data: bytes) -> bytes:
    how, place = int(rng.integers(5)), int(rng.integers(len(data)))
    noise = rng.bytes(int(rng.integers(1, 64)))
    if how == 0:
        return data[:place]
    if how == 1:
        return data + noise
    if how == 2:
        return data[:place] + noise + data[place:]
    if how == 3:
        return data[:place] + noise + data[place + len(noise) :]
    return data[:place] + data[place + len(noise) :]


# the container --------------------------------------------------------------------------------------------------------


def offsets(rng: np.random.Generator, data: bytes) -> bytes:
    header, body = opened(data)
    names = tensor_names(header)
    one = header[names[int(rng.integers(len(names)))]]
    moves = ([0, 0], [-1, 8], [8, 0], [0, len(body) + 8], [2**62, 2**63], [0, 10**30], ["0", 8], None)
    move = moves[int(rng.integers(len(moves)))]
    if rng.integers(2):
        other = header[names[int(rng.integers(len(names)))]]
        move = other.get("data_offsets")
    one["data_offsets"] = move
    return closed(header, body)


def shapes(rng: np.random.Generator, data: bytes) -> bytes:
    header, body = opened(data)
    names = tensor_names(header)
    one = header[names[int(rng.integers(len(names)))]]
    shape = list(one.get("shape") or [1])
    how = int(rng.integers(6))
    if how == 0:
        shape = shape[::-1]
    elif how == 1:
        shape = [int(np.prod([s for s in shape if isinstance(s, int)] or [1]))]
    elif how == 2:
        shape = [1, *shape]
    elif how == 3:
        shape = [2**40, 2**40]
    elif how == 4:
        shape = [-1, *shape[1:]]
    else:
        shape = [0]
    one["shape"] = shape
    return closed(header, body)


def dtypes(rng: np.random.Generator, data: bytes) -> bytes:
    """Other numbers in other bytes, or another name for the same bytes."""
    header, body = opened(data)
    dtype = str(rng.choice(["F32", "F16", "F64", "I64", "BOOL", "F8_E5M2", "NONE"]))
    names = tensor_names(header)
    if rng.integers(2) and dtype in ("F32", "F16"):
        kind = np.float32 if dtype == "F32" else np.float16
        arrays = {}
        for name in names:
            first, last = header[name]["data_offsets"]
            if header[name]["dtype"] != "F64":
                raise Broken
            with np.errstate(over="ignore"):
                arrays[name] = np.frombuffer(body[first:last], np.float64).astype(kind).tobytes()
        return closed(*_packed(header, arrays, dtype))
    header[names[int(rng.integers(len(names)))]]["dtype"] = dtype
    return closed(header, body)


def _packed(header: dict[str, Any], arrays: dict[str, bytes], dtype: str) -> tuple[dict[str, Any], bytes]:
    start, body = 0, b""
    for name, content in arrays.items():
        header[name] = {**header[name], "dtype": dtype, "data_offsets": [start, start + len(content)]}
        start += len(content)
        body += content
    return header, body


def names(rng: np.random.Generator, data: bytes) -> bytes:
    """Tensors renamed, swapped, dropped or doubled."""
    header, body = opened(data)
    known = tensor_names(header)
    one, other = (known[int(rng.integers(len(known)))] for _ in range(2))
    how = int(rng.integers(4))
    if how == 0:
        header[one], header[other] = header[other], header[one]
    elif how == 1:
        header["x" * int(rng.integers(1, 200))] = header.pop(one)
    elif how == 2:
        header.pop(one)
    else:
        header[f"{one}.copy"] = header[one]
    return closed(header, body)


def nesting(rng: np.random.Generator, data: bytes) -> bytes:
    header, body = opened(data)
    depth = int(rng.choice([50, 900, 20_000, 200_000]))
    deep = "[" * depth + "]" * depth
    if rng.integers(2):
        deep = '{"a":' * depth + "1" + "}" * depth
    own = json.dumps(own_header(header))
    field = str(rng.choice(["config", "eps", "certificate", "T", "factors", "domain"]))
    text = own[:-2] + f', "{field}": {deep}' + "}}"
    return closed({**header, "__metadata__": {KEY: text}}, body)


# what the header says -------------------------------------------------------------------------------------------------


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        found += _places(child, (*path, key))
    return found


def _set(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    here = dict(value) if isinstance(value, dict) else list(value)
    here[path[0]] = _set(value[path[0]], path[1:], new)
    return here


def _get(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _other(rng: np.random.Generator, old: Any) -> Any:
    """Another value: most often of the same type, so that it is read."""
    if rng.random() < 0.3:
        strange: list[Any] = [None, True, False, [], {}, "", [[]], {"a": 1}, "1", *NUMBERS]
        return strange[int(rng.integers(len(strange)))]
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        return int(rng.choice([old + 1, old - 1, 2 * old, -old, 0, 1, 10 * old + 3]))
    if isinstance(old, float):
        return float(old * rng.choice([0.5, 2.0, -1.0, 1 + 1e-12, 1 + 1e-3, 0.0, 1e6, 1e-6]))
    if isinstance(old, str):
        return WORDS[int(rng.integers(len(WORDS)))]
    if isinstance(old, list):
        return [*old, *old] if rng.integers(2) else old[:-1]
    return NUMBERS[int(rng.integers(len(NUMBERS)))]


def fields(rng: np.random.Generator, data: bytes) -> bytes:
    """Any place of our own header."""
    header, body = opened(data)
    own = own_header(header)
    for _ in range(int(rng.integers(1, 3))):
        places = [p for p in _places(own) if "certificate" not in p or rng.random() < 0.1]
        path = places[int(rng.integers(len(places)))]
        own = _set(own, path, _other(rng, _get(own, path)))
    return closed(with_own(header, own), body)


def configuration(rng: np.random.Generator, data: bytes) -> bytes:
    """A field of the configuration with another value it may have."""
    header, body = opened(data)
    own = own_header(header)
    config = own.get("header", {}).get("config")
    if not isinstance(config, dict):
        return fields(rng, data)
    name = list(config)[int(rng.integers(len(config)))]
    own["header"] = {**own["header"], "config": {**config, name: _other(rng, config[name])}}
    return closed(with_own(header, own), body)


def huge(rng: np.random.Generator, data: bytes) -> bytes:
    """One number of the header, or one of a tensor, far outside everything."""
    header, body = opened(data)
    if rng.integers(2):
        own = own_header(header)
        places = [p for p in _places(own) if type(_get(own, p)) in (int, float) and "certificate" not in p]
        path = places[int(rng.integers(len(places)))]
        own = _set(own, path, NUMBERS[int(rng.integers(len(NUMBERS)))])
        return closed(with_own(header, own), body)
    return _entry(rng, header, body, float(rng.choice([1e308, -1e308, 1e200, 1e20, 5e-324, np.nan, np.inf])))


def weights(rng: np.random.Generator, data: bytes) -> bytes:
    """One number of a tensor moved, by little or by much."""
    header, body = opened(data)
    return _entry(rng, header, body, None)


def _entry(rng: np.random.Generator, header: dict[str, Any], body: bytes, value: float | None) -> bytes:
    known = [n for n in tensor_names(header) if header[n].get("dtype") == "F64"]
    if not known:
        raise Broken
    first, last = header[known[int(rng.integers(len(known)))]]["data_offsets"]
    array = np.frombuffer(body, np.float64, (last - first) // 8, first).copy()
    if not array.size:
        raise Broken
    place = int(rng.integers(array.size))
    with np.errstate(all="ignore"):
        moved = array[place] + rng.choice([1e-13, 1e-9, 1e-6, 1e-3, 0.1, 1.0, 100.0]) * rng.choice([-1.0, 1.0])
        array[place] = moved if value is None else value
    return closed(header, body[:first] + array.tobytes() + body[last:])


def targets(rng: np.random.Generator, data: bytes) -> bytes:
    """Another target, function, length, box, kind or promise."""
    header, body = opened(data)
    own = own_header(header)
    inner = dict(own.get("header") or {})
    choices: dict[str, tuple[Any, ...]] = {
        "target": TARGETS,
        "function": FUNCTIONS,
        "T": (1, 2, 4, 5, 6, 7, 100, 3000, 10**5, 10**9, 10**15),
        "domain": ([[-1.0], [1.0]], [[0.0, 0.0], [1.0, 1.0]], [[-1e3, -1e3], [1e3, 1e3]], [-1, 1], [[1.0], [0.0]], []),
        "lipschitz": (None, 0.0, 1e-3, 1.0, 3.0, 1e3, 1e300),
        "eps": (1e-3, 0.05, 0.5, 1.0, 10.0, 1e6, 1e-9, 0.0, -1.0, None),
        "loss": ("squared", "logistic", "huber", "logcosh"),
        "kind": KINDS,
    }
    present = [name for name in choices if name in inner or name == "kind"]
    name = present[int(rng.integers(len(present)))]
    value = choices[name][int(rng.integers(len(choices[name])))]
    if name == "kind":
        return closed(with_own(header, {**own, "kind": value}), body)
    return closed(with_own(header, {**own, "header": {**inner, name: value}}), body)


DAMAGE: dict[str, Callable[[np.random.Generator, bytes], bytes]] = {
    "bits": bits,
    "bits of tensors": body_bits,
    "bytes": some_bytes,
    "fields": fields,
    "configuration": configuration,
    "dtypes": dtypes,
    "shapes": shapes,
    "offsets": offsets,
    "tensor names": names,
    "nesting": nesting,
    "huge numbers": huge,
    "weights": weights,
    "other targets": targets,
}


def damaged(rng: np.random.Generator, data: bytes) -> tuple[str, bytes]:
    """(name of the damage, other bytes); one in five files is damaged twice.

    Half of the damage leaves the container whole and the tensors in place: those files are read to the end."""
    quiet = ("fields", "configuration", "weights", "huge numbers", "other targets", "bits of tensors")
    kinds = [*DAMAGE, *quiet]
    while True:
        name = kinds[int(rng.integers(len(kinds)))]
        try:
            changed = DAMAGE[name](rng, data)
            if rng.random() < 0.2:
                changed = DAMAGE[kinds[int(rng.integers(len(kinds)))]](rng, changed)
        except (Broken, KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError):
            continue
        if changed != data:
            return name, changed
