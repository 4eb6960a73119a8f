"""How Triton kernels of many short steps are launched."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor


@triton.jit
def _nothing() -> None:
    return


INTERPRETED = not isinstance(_nothing, triton.JITFunction)  # TRITON_INTERPRET was set before Triton's import


def working_dtype(inputs: Tensor) -> torch.dtype:
    """What products of these inputs are computed in: autocast's dtype where it is on."""
    device = inputs.device.type
    if torch.is_autocast_enabled(device) and inputs.dtype != torch.float64:  # which autocast leaves alone
        return torch.get_autocast_dtype(device)
    return inputs.dtype


class Launch:
    """A kernel with all its arguments but the first, the step.

    Triton looks at every argument of every launch, which takes longer than a short kernel; so the first call
    is a usual one, and those after it go straight to the compiled kernel, with plain addresses. Where
    launches `overlap`, it is the kernel that waits for what was launched before it.
    """

    def __init__(
        self,
        kernel: Any,
        grid: tuple[int, int, int],
        args: tuple[Any, ...],
        warps: int,
        overlap: bool = False,
    ) -> None:
        self.kernel, self.grid, self.args = kernel, grid, args
        self.options = {"num_warps": warps, **({"launch_pdl": True} if overlap else {})}
        self.compiled: Any = None
        self.addresses: list[Any] = []
        self.stream = 0

    def __call__(self, step: int) -> None:
        """Launch on the stream that was current at the first call."""
        if self.compiled is not None:
            self.compiled(step, *self.addresses, stream=self.stream)
            return
        compiled = self.kernel[self.grid](step, *self.args, **self.options)
        if not INTERPRETED:
            self.addresses = [a.data_ptr() if isinstance(a, Tensor) else a for a in self.args]
            self.compiled, self.stream = compiled[self.grid], torch.cuda.current_stream().cuda_stream
