"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# How long an example takes says nothing here: the machine may be busy with another process's tests.
settings.register_profile("batchd", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("batchd")
