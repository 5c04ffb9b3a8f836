"""What real processes need in these tests."""

from tests.integration.failures.conftest import lease_s, world

__all__ = ["lease_s", "world"]
