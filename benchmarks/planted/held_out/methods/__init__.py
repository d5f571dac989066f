"""Training methods as papers bring them: other optimizers, other steps, other losses."""
