"""PyTorch's Adam, without the import of PyTorch's compiler."""

from inspect import unwrap

import torch
from torch import optim


class Adam(optim.Adam):
    """The same updates, bit for bit, nearly two seconds sooner.

    PyTorch wraps these methods for `torch.compile`, and the first call imports the compiler. Here they stand
    without the wrapping, since no update is compiled.
    """

    add_param_group = unwrap(optim.Adam.add_param_group)
    zero_grad = unwrap(optim.Adam.zero_grad)
    state_dict = unwrap(optim.Adam.state_dict)
    load_state_dict = unwrap(optim.Adam.load_state_dict)
    step = torch.no_grad()(unwrap(optim.Adam.step))
