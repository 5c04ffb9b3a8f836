"""Batches: jobs of one task whose ids say their batch and position, and how they ended."""
