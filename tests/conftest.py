"""One setting for all property tests: no deadlines (speed is measured in benchmarks/, never in tests)."""

from hypothesis import HealthCheck, settings

settings.register_profile("infoflow", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("infoflow")
