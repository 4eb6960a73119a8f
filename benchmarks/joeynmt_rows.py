"""JoeyNMT 2.3's character model in the same sizes, trained and searched by its own code.

    pip install tensorboard portalocker
    pip install --no-deps joeynmt==2.3.0 importlib_metadata==8.7.0 zipp packaging pyyaml \
        sentencepiece subword-nmt tqdm

--no-deps: it asks for versions that do not go with a current PyTorch. Its one call that a current PyTorch
refuses (`verbose` of ReduceLROnPlateau) is not needed here.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from joeynmt.batch import Batch
from joeynmt.model import Model, build_model
from joeynmt.search import search
from joeynmt.vocabulary import Vocabulary

Timer = Callable[..., float]


def model(device: str) -> Model:
    """Embeddings 620, encoder 2 x 500, decoder 1000, Bahdanau attention; 117 and 97 symbols; float32."""
    specials = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    ids = {"unk_id": 0, "pad_id": 1, "bos_id": 2, "eos_id": 3, "sep_token": None, "sep_id": None}
    special = SimpleNamespace(**specials, **ids, lang_tags=[])
    vocabularies = (Vocabulary([chr(0x4E00 + i) for i in range(size - 4)], special) for size in (117, 97))
    recurrent: dict[str, Any] = {"type": "recurrent", "rnn_type": "gru", "embeddings": {"embedding_dim": 620}}
    config = {
        "encoder": recurrent | {"hidden_size": 500, "num_layers": 1, "bidirectional": True},
        "decoder": recurrent
        | {
            "hidden_size": 1000,
            "num_layers": 1,
            "attention": "bahdanau",
            "init_hidden": "bridge",
            "input_feeding": False,
        },
    }
    logging.disable(logging.INFO)
    torch.manual_seed(1)
    built = build_model(config, *vocabularies)
    built.loss_function = ("crossentropy", 0.0)
    return built.to(device)


def batch(B: int, device: str) -> Batch:
    """Random sentences of 100 symbols on both sides, </s> included."""
    src, trg = torch.randint(4, 97, (B, 100)), torch.randint(4, 97, (B, 101))
    src[:, -1], trg[:, 0], trg[:, -1] = 3, 2, 3
    place = torch.device(device)
    return Batch(src, torch.full((B,), 100), None, trg, None, torch.arange(B), place, 1, 3)


@contextmanager
def tf32() -> Iterator[None]:
    """Products as JoeyNMT's GPUs run them."""
    backends = torch.backends.cuda.matmul, torch.backends.cudnn
    for backend in backends:
        backend.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False  # cuDNN's default is True


def training_step(B: int, rounds: int, milliseconds: Timer) -> float:
    """Forward, backward and its Adam, which is not the fused one."""
    built, data = model("cuda").train(), batch(B, "cuda")
    optimizer = torch.optim.Adam(built.parameters(), lr=1e-5)

    def step() -> None:
        loss = built(return_type="loss", **vars(data))[0] / data.ntokens
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    with tf32():
        return milliseconds(step, max(2, rounds // 4), warm=2)


def decoding(B: int, beam: int, milliseconds: Timer) -> float:
    """Their search over B sentences, 100 symbols long whatever they are."""
    built, data = model("cuda").eval(), batch(B, "cuda")
    length = {"max_output_length": 100, "min_output_length": 100}
    with tf32():
        return milliseconds(lambda: search(built, data, beam_size=beam, beam_alpha=1.0, **length), 2, warm=1)


def serve(beam: int) -> None:
    """For cpu_decoding.py: a line with threads, batch size and batches in, the seconds they took out."""
    built = model("cpu").eval()
    print("ready", flush=True)
    for line in sys.stdin:
        threads, B, count = map(int, line.split())
        torch.set_num_threads(threads)
        began = time.perf_counter()
        for _ in range(count):
            data = batch(B, "cpu")
            symbols, _, _ = search(built, data, 100, beam, 1.0, min_output_length=100)
            assert symbols.shape == (B, 100)
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
