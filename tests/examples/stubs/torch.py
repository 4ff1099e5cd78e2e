"""A stub of torch: one weight, one number instead of each tensor, and the few names that the example uses."""

import json
import os
import random
import time

_DELAY_S = float(os.environ.get("STUB_STEP_S", "0"))


class Tensor:
    """`backward`: the function that passes the gradient on."""

    def __init__(self, value, backward=lambda gradient: None):
        self.value, self._backward = value, backward

    def sum(self, dim, keepdim):
        return Tensor(3.0 * self.value)

    def mean(self):
        return self

    def __sub__(self, other):
        return Tensor(self.value - other.value, self._backward)

    def __pow__(self, power):
        return Tensor(self.value**power, lambda g: self._backward(g * power * self.value ** (power - 1)))

    def backward(self):
        self._backward(1.0)

    def item(self):
        return self.value


class Linear:
    def __init__(self, inputs, outputs):
        self.state = {"weight": 0.0}
        self.gradient = 0.0

    def parameters(self):
        return [self]

    def __call__(self, x):
        def backward(gradient):
            self.gradient += gradient * x.value

        return Tensor(self.state["weight"] * x.value, backward)

    def state_dict(self):
        return dict(self.state)

    def load_state_dict(self, state):
        self.state = dict(state)


class SGD:
    def __init__(self, parameters, lr):
        self.parameters, self.lr, self.steps = parameters, lr, 0

    def zero_grad(self):
        for one in self.parameters:
            one.gradient = 0.0

    def step(self):
        time.sleep(_DELAY_S)
        self.steps += 1
        for one in self.parameters:
            one.state["weight"] -= self.lr * one.gradient

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


class Generator:
    def manual_seed(self, seed):
        self.random = random.Random(seed)
        return self


class nn:  # noqa: N801 - torch's own name
    Linear = Linear


class optim:  # noqa: N801 - torch's own name
    SGD = SGD


def manual_seed(seed):
    random.seed(seed)


def randn(rows, columns, generator):
    return Tensor(generator.random.gauss(0, 1))


def save(state, path):
    with open(path, "w") as target:
        json.dump(state, target)


def load(path, weights_only):
    assert weights_only
    with open(path) as source:
        return json.load(source)
