"""Semaphores, rates and quotas, and the permits that workers hold."""
