"""What all tests share: one thread, so that runs on a busy machine do not fight, and no deadlines."""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("caesura", deadline=None)
settings.load_profile("caesura")
