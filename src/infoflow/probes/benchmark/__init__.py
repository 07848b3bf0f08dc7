"""Networks whose mechanism is known, hidden, as a yardstick for methods that explain networks.

infoflow planted DIR --count 1000 --seed 0        makes them
for network in open_benchmark("DIR"):             reads them; a method sees network.model and network.batch
    answer = my_method(network.model, network.batch)
"""

from infoflow.probes.benchmark.read import PlantedNetwork, open_benchmark
from infoflow.probes.benchmark.score import score

__all__ = ["PlantedNetwork", "open_benchmark", "score"]
