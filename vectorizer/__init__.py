"""Static auto-batching of TensorFlow programs: per-example graph in, batched graph out.

    v = vectorize(fn, [tf.TensorSpec([None, 64]), tf.TensorSpec([], tf.int32)])   # specs of ONE example
    v(xs, ns)                                                                     # a whole batch

How it works, pass by pass: `tracing.py`, `analysis.py`, `plan.py`, `emission.py`.
"""

from vectorizer.batched_program import BatchedProgram
from vectorizer.derivatives import grad, hessian, jacobian
from vectorizer.drop_ins import pfor, vectorized_map
from vectorizer.errors import Finding, VectorizationError
from vectorizer.registry import convert, supported_ops
from vectorizer.tracing import trace
from vectorizer.vectorized import Bound, Vectorized, vectorize

__all__ = [
    "BatchedProgram",
    "Bound",
    "Finding",
    "VectorizationError",
    "Vectorized",
    "convert",
    "grad",
    "hessian",
    "jacobian",
    "pfor",
    "supported_ops",
    "trace",
    "vectorize",
    "vectorized_map",
]
