"""Real work, a kill, a proof."""
