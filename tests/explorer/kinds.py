"""Kinds of small models that the explorer's tests show."""

from helpers import ACT, ACT_DECODER, BIGRU, LOOKUP, RECURRENT, TRANSFORMER

READER = {"type": "bigru", "embedding_dim": 4, "size": 3}
CIF = {"type": "parts", "reader": READER, "cutter": {"type": "cif"}, "pooling": "weighted"}
CIF |= {"rate": {"target": 2.0}, "output_dim": 5}
SHORT = {"max_output_ratio": 1.0, "max_output_extra": 3}
KINDS = {
    "char": (LOOKUP, RECURRENT, BIGRU),
    "act": (ACT, RECURRENT, BIGRU),
    "cif": (CIF, RECURRENT, BIGRU),
    "writes": (CIF, ACT_DECODER, BIGRU),
    "heads": (CIF, TRANSFORMER, TRANSFORMER | {"places": "symbols"}),
}
