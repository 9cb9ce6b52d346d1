"""A critic of numbers, for tests without nets."""

import numpy as np


class Critic:
    """Q(s, a) = value(s), a soft one if it has a bonus."""

    def __init__(self, value=None, bonus=None, tail=None, scale=1.0, greedy=None):
        self.value, self.of_bonus, self.of_tail, self.scale = value, bonus, tail, scale
        self.of_greedy = greedy
        self.soft, self.bootstraps = bonus is not None, tail is not None

    def values(self, observations, actions):
        n = len(next(iter(observations.values())) if isinstance(observations, dict) else observations)
        return np.zeros(n) if self.value is None else np.asarray(self.value(observations), float)

    def bonus(self, observations):
        return np.asarray(self.of_bonus(observations), float)

    def tail(self, observations):
        return np.asarray(self.of_tail(observations), float)

    def greedy(self, observations):
        return None if self.of_greedy is None else np.asarray(self.of_greedy(observations))

    def scale_rewards(self, rewards):
        return rewards * self.scale
