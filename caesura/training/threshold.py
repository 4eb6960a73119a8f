"""The threshold that a model cuts with outside of training, set on training text."""

from __future__ import annotations

import numpy as np

from caesura.data.corpus import Corpus
from caesura.inference import Translator
from caesura.layers.modes import evaluating
from caesura.training.feed import collated

SENTENCES, TOGETHER = 2_000, 250  # of the training text, evenly spread over it, and how many share a batch


def settle(model: Translator, corpus: Corpus) -> None:
    """Set the threshold that the model cuts with outside of training, if it has one."""
    if not model.segmenter.settles:
        return
    rows = np.unique(np.linspace(0, len(corpus) - 1, SENTENCES).astype(np.int64))
    rows = rows[corpus.lengths[rows, 0].argsort(kind="stable")]
    parts = (collated(corpus, rows[at : at + TOGETHER]) for at in range(0, len(rows), TOGETHER))
    batches = (part.to(model.device) for part in parts)
    with evaluating(model), model.precision():  # as validations and translations compute
        model.segmenter.settle((batch.src, batch.src_lengths, batch.src_cuts) for batch in batches)
