"""Know what a Transformer can compute before you train it, and get the proof as weights.

The verbs are loaded when they are first used, so `import infoflow` costs numpy alone.
"""

import importlib as _importlib
import typing as _typing

from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError, JobError

__version__ = "0.1.0"

# public name -> module that defines it; loaded on first use.
_LAZY: dict[str, str] = {
    "predict": "infoflow.verdicts.predict",
    "plan": "infoflow.verdicts.plan",
    "forecast": "infoflow.forecasts.forecast",
    "trace": "infoflow.verbs",
    "scale": "infoflow.verdicts.scale",
    "refute": "infoflow.refutations.search",
    "load": "infoflow.nn.files",
    "build": "infoflow.verbs",
    "certify": "infoflow.verbs",
    "OneLayer": "infoflow.proofs.adapter",
    "fit": "infoflow.train.fit",
    "fit_many": "infoflow.train.fit",
    "Recipe": "infoflow.train.fit",
    "Task": "infoflow.train.fit",
    "task": "infoflow.train.tasks",
    "Run": "infoflow.train.fit",
    "probe": "infoflow.probes.summary",
    "memorize": "infoflow.construct.rank_one.memorize",
    "ContextMap": "infoflow.construct.rank_one.context_map",
    "approximate_equivariant": "infoflow.construct.rank_one.equivariant",
    "approximate_function": "infoflow.construct.rank_one.equivariant",
    "hardmax_collision": "infoflow.construct.rank_one.hardmax",
}

__all__ = ["Architecture", "InfoFlowError", "JobError", *_LAZY]


def __getattr__(name: str) -> _typing.Any:
    if name in ("targets", "book"):  # rooms that are used as namespaces: iflow.targets.pairwise_max(D=4)
        return _importlib.import_module(f"infoflow.{name}")
    if name in _LAZY:
        return getattr(_importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'infoflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "book", "targets", "__version__"])
