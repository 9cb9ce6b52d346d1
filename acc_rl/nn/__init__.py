"""Networks and losses in torch, without Stable-Baselines3."""
