"""Operands that say how a result is laid out, not what is in it: part of a node's signature, not its data."""

from __future__ import annotations

from vectorizer.program import Op

_BY_POSITION = {
    (0,): "Split Fill Conv2DBackpropInput",
    (
        1,
    ): "Reshape ExpandDims Transpose ConjugateTranspose Tile Pad MirrorPad BroadcastTo ReverseV2 OneHot ArgMax ArgMin "
    "Sum Prod Max Min Mean All Any EuclideanNorm Cumsum Cumprod CumulativeLogsumexp TopKV2 RFFT IRFFT MatrixDiagPartV3 "
    "ResizeBilinear ResizeNearestNeighbor ResizeBicubic ResizeArea Conv2DBackpropFilter",
    (2,): "GatherV2 ScatterNd MatrixSetDiagV3 "
    "UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd",
    (0, 1, 2): "Range LinSpace",
    (0, 1, 2, 3): "StridedSliceGrad",
    (1, 2): "Slice SplitV MatrixBandPart SpaceToBatchND BatchToSpaceND",
    (1, 2, 3): "StridedSlice PadV2",
    (1, 2, 3, 4): "MatrixDiagV3",
}
_POSITIONS = {name: frozenset(positions) for positions, names in _BY_POSITION.items() for name in names.split()}


def positions(op: Op) -> frozenset[int]:
    """Which operands of `op` they are."""
    if op.type == "ConcatV2":
        return frozenset({len(op.inputs) - 1})
    return _POSITIONS.get(op.type, frozenset())
