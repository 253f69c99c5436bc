"""From TensorFlow's errors to the user's own sentence.

TensorFlow wraps a failed assertion's message in node names, paths and a list of brackets. Callers of the
server get the message alone, without paths or tensor names of the machine it runs on.
"""

from __future__ import annotations

import re

_NODE_TAIL = re.compile(r"\s*\[\[\{\{node .*", re.DOTALL)
_FUNCTION_NODE = re.compile(r"\{\{function_node [^}]*\}\}\s*")
_OP_TAIL = re.compile(r"\s*\[Op:[^\]]*\]( name: \S*)?\s*$")
_TRACE_LINES = re.compile(
    r'\AGraph execution error:.*^ +File "[^"\n]*", line \d+, in [^\n]*\n+', re.DOTALL | re.MULTILINE
)
_TENSOR_NAME = re.compile(r"^(\w+) \([^()]*\) = $")
_USER_LINE = re.compile(r'^ +File "(?P<file>[^"]+)", line (?P<line>\d+), in .*$', re.MULTILINE)


def row_message(error: BaseException) -> str:
    """Returns the message of an error that the per-example function raised when it ran."""
    text = str(getattr(error, "message", None) or error)
    text = _TRACE_LINES.sub("", text)
    text = _OP_TAIL.sub("", _NODE_TAIL.sub("", _FUNCTION_NODE.sub("", text))).strip()
    if text.startswith("assertion failed: "):
        return _assertion(text.removeprefix("assertion failed: "))
    return text or type(error).__name__


def tracing_message(error: BaseException) -> str:
    """Returns, in one line, what went wrong while the function was traced, and where in the user's code."""
    text = str(error).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    what = lines[-1] if lines else type(error).__name__
    if not text.startswith("in user code:"):
        return f"{type(error).__name__}: {what}"
    places = list(_USER_LINE.finditer(text))
    return f"{what} ({places[-1]['file']}:{places[-1]['line']})" if places else what


def _assertion(text: str) -> str:
    """Joins the bracketed parts of an assertion; a message of the user's own stands alone.

    TensorFlow's own assertions put what they checked after it, most with ".  " between.
    """
    parts = text.removeprefix("[").removesuffix("]").split("] [")
    if parts[0].endswith(".  "):
        return parts[0][:-3]
    generic = next((i for i, part in enumerate(parts) if part.startswith("Condition ")), None)
    if generic:
        return " ".join(part.strip() for part in parts[:generic] if part.strip())
    return " ".join(_TENSOR_NAME.sub(r"\1 =", part).strip() for part in parts).strip()
