"""What a person is told of a named target: keys, domain, sampler, law of its random matrices."""

from typing import Any

from infoflow.targets.named import NAMED, spell_positions, spell_sets


def describe(name: str) -> dict[str, Any]:
    """Everything `infoflow targets` says of a name."""
    named = NAMED[name]
    target = named.build()
    return {
        "name": name,
        "formula": (named.build.__doc__ or "").strip().splitlines()[0].rstrip("."),
        "keys": {key: _spelled(value) for key, value in named.defaults.items()},
        "spelling": target.spelling,
        "domain": list(target.domain),
        "sampler": target.sampler,
        "law": named.law,
        "token_dimension": target.dim,
        "outputs": target.outputs,
        "arity": target.arity,
        "certified_inputs": target.condition or None,
    }


def _spelled(value: Any) -> Any:
    if not isinstance(value, tuple):
        return value
    return spell_sets(value) if value and isinstance(value[0], tuple) else spell_positions(value)
