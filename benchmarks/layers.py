"""Each recurrence of the paper's systems alone, forward and backward, in milliseconds on a GPU."""

from __future__ import annotations

import torch
from systems import ACT_DEC_SIZE, ATTENTION, DECODER, ENCODER, PARTS, SYSTEMS
from timing import environment, milliseconds, replayed
from torch import Tensor, nn

from caesura.encoders.recurrent import RecurrentEncoder
from caesura.kernels.act_decoder import act_decode
from caesura.kernels.act_decoder_weights import ActDecoderWeights
from caesura.kernels.attention_decoder import DecoderWeights, decode
from caesura.layers.masks import positions_mask
from caesura.segmenters.parts import Gaps, Reading

ACT_ENC = SYSTEMS[1]


def act_layer(B: int, rounds: int) -> float:
    """As training runs it: the cuts, one synchronisation, the rest."""
    system = ACT_ENC
    module, batch = system.model().segmenter, system.batch(B).to("cuda")
    side, cutting, rest = torch.cuda.Stream(), torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()

    def cut():
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            return module.cut(batch.src, batch.src_lengths)

    def back(cuts, S: int, given: Tensor | None = None) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            segments = module.emit(cuts, S)
        given = torch.randn_like(segments.vectors) if given is None else given
        of_penalty = torch.full_like(segments.penalty, 1 / B)
        torch.autograd.backward((segments.vectors, segments.penalty), (given, of_penalty), retain_graph=True)
        return given

    with torch.cuda.stream(side):
        cuts = cut()
        S = int(cuts.cuts.segments)
        given = back(cuts, S)
    torch.cuda.synchronize()
    del cuts
    with torch.cuda.graph(cutting, stream=side):
        cuts = cut()
    with torch.cuda.graph(rest, stream=side, pool=cutting.pool()):
        back(cuts, S, given)

    def step() -> None:
        cutting.replay()
        assert int(cuts.cuts.segments) == S
        rest.replay()

    return milliseconds(step, rounds)


def cutter_layer(B: int, rounds: int, cutter: str, pooled: bool) -> float:
    """A cutter, with pooling if `pooled`, from a graph; the gradient of the reader's states is wanted too."""
    system = PARTS[cutter]
    module, batch = system.model().segmenter, system.batch(B).to("cuda")
    T = batch.src.shape[1]
    mask = positions_mask(batch.src_lengths, T)
    states = torch.randn(B, T, module.reader.output_dim, device="cuda", dtype=torch.bfloat16).requires_grad_()
    gradient = torch.randn(B, module.room(T), module.reader.output_dim, device="cuda")

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            reading = Reading(states, batch.src, batch.src_lengths, mask)
            cuts = module.cutter(reading, Gaps.of(batch.src_lengths, mask, None))
            if pooled:
                vectors = module.pooling(states, cuts, gradient.shape[1])
        if pooled:
            vectors.backward(gradient.to(vectors.dtype))
        elif cuts.weights.requires_grad:
            given = torch.ones_like(cuts.weights)
            torch.autograd.backward((cuts.weights, cuts.spill), (given, 2 * given))

    return replayed(step, rounds)


def act_reference(B: int) -> float:
    """Eager, in plain autograd operations."""
    system = ACT_ENC
    module, batch = system.model().segmenter, system.batch(B).to("cuda")

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            segments = module(batch.src, batch.src_lengths)
        (segments.vectors.sum() + segments.penalty.mean()).backward()

    with environment(CAESURA_KERNELS="reference"):
        return milliseconds(step, 2, warm=1)


def encoder_layer(B: int, rounds: int) -> float:
    """From a graph; the gradient of the vectors is wanted too."""
    encoder = RecurrentEncoder(620, ENCODER).cuda()
    vectors = torch.randn(B, 100, 620, device="cuda", requires_grad=True)
    lengths, given = torch.full((B,), 100, device="cuda"), torch.randn(B, 100, 2 * ENCODER, device="cuda")

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            states = encoder(vectors, lengths).states
        states.backward(given.to(states.dtype))

    return replayed(step, rounds)


def cudnn_layer(B: int, rounds: int) -> float:
    """nn.GRU, bidirectional, in bfloat16; from a graph too."""
    gru = nn.GRU(620, ENCODER, batch_first=True, bidirectional=True).cuda().bfloat16()
    gru.flatten_parameters()
    vectors = torch.randn(B, 100, 620, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    given = torch.randn(B, 100, 2 * ENCODER, device="cuda", dtype=torch.bfloat16)
    return replayed(lambda: gru(vectors)[0].backward(given), rounds)


def decoder_layer(B: int, rounds: int) -> float:
    """Teacher-forced over 100 segments and 100 symbols, from a graph."""
    H = DECODER
    inputs, hidden, keys, values = random(B, 100, 3 * H), random(B, H), random(B, 100, H), random(B, 100, H)
    mask = torch.ones(B, 100, dtype=torch.bool, device="cuda")
    shapes = (H, H), (1, H), (3 * H, H), (3 * H, H), (3 * H,)
    weights = DecoderWeights(*(random(*shape, scale=0.03) for shape in shapes))
    given = torch.randn(B, 100, H, device="cuda")

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            low = (t.bfloat16() for t in (inputs, hidden, keys, values))
            states, _ = decode(*low, mask, weights)
        states.backward(given.to(states.dtype))

    return replayed(step, rounds)


def act_decoder_layer(B: int, rounds: int) -> float:
    """The same for ACT-DEC, whose segments are of two symbols as a fresh unit cuts them."""
    H, A, M = DECODER, ACT_DEC_SIZE, 2 * ENCODER
    inputs, outer = random(B, 100, 3 * H + 3 * A), random(B, H)
    keys, values = random(B, 100, ATTENTION), random(B, 100, M)
    mask = torch.ones(B, 100, dtype=torch.bool, device="cuda")
    forced = (torch.arange(100, device="cuda") == 99).expand(B, 100)
    shapes: dict[str, tuple[int, ...]] = {
        "query": (ATTENTION, H),
        "energy": (1, ATTENTION),
        "context": (3 * H, M),
        "outer_hh": (3 * H, H),
        "outer_bias": (3 * H,),
        "inner_hh": (3 * A, A),
        "inner_bias": (3 * A,),
        "halting_weight": (1, A),
        "halting_bias": (1,),
        "enter_weight": (A, H),
        "enter_bias": (A,),
        "leave_weight": (H, A),
        "leave_bias": (H,),
    }
    tensors = {name: random(*shape, scale=0.03) for name, shape in shapes.items()}
    weights = ActDecoderWeights(**tensors, inner_context=None)
    with torch.no_grad():
        tensors["halting_bias"].fill_(1.0)
    given = torch.randn(B, 100, A, device="cuda")

    def step() -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            low = (t.bfloat16() for t in (inputs, outer, keys, values))
            trace = act_decode(*low, mask, forced, weights, 0.01)
        ((trace.states * given.to(trace.states.dtype)).float().sum() + trace.scores.sum()).backward()
        return trace.ends

    assert abs(100 * B / int(step().sum()) - 2) < 0.1
    return replayed(step, rounds)


def random(*shape: int, scale: float = 1.0) -> Tensor:
    """Normal numbers that want a gradient."""
    return (scale * torch.randn(*shape, device="cuda")).requires_grad_()
