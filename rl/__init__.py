"""From trajectories to weights: rows, objectives, the trainer and its adapters; what they are worth is for evolve."""
