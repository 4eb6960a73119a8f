"""Adam without PyTorch's wrapping for its compiler: the same updates and states, bit for bit."""

from copy import deepcopy

import pytest
import torch
from torch import nn, optim

from caesura.kernels.adam import Adam


def turn(model: nn.Module, optimizer: optim.Optimizer, seed: int) -> None:
    optimizer.zero_grad()
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(seed))
    model(x).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize(
    "options", [{}, {"weight_decay": 0.1, "amsgrad": True}, {"foreach": False, "eps": 1e-4}]
)
def test_updates_and_states_are_pytorchs_also_after_an_exchange_of_states(options: dict[str, float]) -> None:
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    theirs = deepcopy(ours)
    one: optim.Adam = Adam(ours[0].parameters(), 0.03, **options)
    other = optim.Adam(theirs[0].parameters(), 0.03, **options)
    for optimizer, model in ((one, ours), (other, theirs)):
        optimizer.add_param_group({"params": [*model[2].parameters()], "lr": 0.01})
    for seed in range(8):
        if seed == 4:  # each goes on from the other's state
            kept, taken = deepcopy(one.state_dict()), deepcopy(other.state_dict())
            one.load_state_dict(taken)
            other.load_state_dict(kept)
        turn(ours, one, seed)
        turn(theirs, other, seed)
        for left, right in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert left.equal(right)
        states, wanted = one.state_dict(), other.state_dict()
        assert states["param_groups"] == wanted["param_groups"]
        assert states["state"].keys() == wanted["state"].keys()
        for key, state in wanted["state"].items():
            assert states["state"][key].keys() == state.keys()
            assert all(states["state"][key][name].equal(value) for name, value in state.items())


def test_a_step_has_no_gradient() -> None:
    layer = nn.Linear(2, 2)
    optimizer = Adam(layer.parameters())
    layer(torch.ones(1, 2)).sum().backward()
    assert optimizer.step(lambda: layer(torch.ones(1, 2)).sum().detach()) is not None
    assert all(p.requires_grad and p.is_leaf for p in layer.parameters())
