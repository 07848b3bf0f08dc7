"""Which tokens does the output hold: a score for every token of every document, by `iflow.trace` and by proxies.

Sets follow from a threshold: for `iflow.trace` on its effects (Sobol indices, attention held), for all others on the
share of the document's largest score: the proxies (`probes.proxies`), and the effects again (SHARES). With attention
held, an effect can be hundreds of times the variance of the output (a token of the closest pair moves away and stays
chosen), and a bound in units of that variance then lets in tokens with a thousandth of the others' effect.
"""

import numpy as np
from jaxtyping import Float

from infoflow.probes.benchmark.read import PlantedNetwork
from infoflow.probes.effects import Stage
from infoflow.probes.infosets import law_of, measured_sets, reader
from infoflow.probes.law import Variances, apart
from infoflow.probes.measured import MeasuredFlows
from infoflow.probes.proxies import proxies
from infoflow.probes.record import Batch
from infoflow.probes.rerun import Rerun

TRACE, SHARES = "infoflow: trace", "infoflow: trace, of the largest"
NAMES = {"argmax": "attention argmax", "rollout": "rollout", "flow": "attention flow", "gradient": "gradient x input"}
DRAWS = 8
DOCUMENTS = 24


def scores(network: PlantedNetwork) -> dict[str, Float[np.ndarray, "documents T"]]:
    """Every method's scores of the first documents; tokens are drawn from all documents."""
    X, model = network.X[:DOCUMENTS], network.model
    flows = measured_sets(model, X, law=network.X, draws=DRAWS, selection=False, interior=False, threshold=0.01)
    assert isinstance(flows, MeasuredFlows)
    effects = np.stack([flow.content.output for flow in flows.flows])
    found = {TRACE: effects, SHARES: effects / effects.max(1, keepdims=True).clip(min=1e-30)}
    rows: dict[str, list[np.ndarray]] = {name: [] for name in NAMES}
    documents = apart([Batch({"X": X})])
    law = law_of(model, documents, None, 0)
    for number, document in enumerate(documents):
        with Rerun(model, document, reader(model, document)) as rerun:
            stage = Stage(rerun, document, law.draws(document, 2, number), Variances(1.0, [], 0))
            for name, values in proxies(stage).items():
                rows[name].append(values / max(float(values.max()), 1e-30))
    return found | {NAMES[name]: np.stack(values) for name, values in rows.items()}


def answers(network: PlantedNetwork) -> dict[str, dict[str, list[list[float]]]]:
    return {name: {"set_scores": np.round(found, 7).tolist()} for name, found in scores(network).items()}
