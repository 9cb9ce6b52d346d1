"""The algorithms, built on Stable-Baselines3."""
