"""Where programs run, and with how many threads. To be called before TensorFlow has done anything."""

from __future__ import annotations

import re

import tensorflow as tf

from server.engines.settings import EngineSettings
from server.errors import ModelLoadError


def set_up_device(settings: EngineSettings) -> str:
    """Makes the chosen device the only one that TensorFlow uses; returns its name ("cpu", "gpu:0").

    Several engine processes may share a GPU, so memory is taken as needed. Raises ModelLoadError where there
    is no such device.
    """
    if settings.intra_op_threads is not None:
        tf.config.threading.set_intra_op_parallelism_threads(settings.intra_op_threads)
    if settings.inter_op_threads is not None:
        tf.config.threading.set_inter_op_parallelism_threads(settings.inter_op_threads)
    gpus = [] if settings.device == "cpu" else tf.config.list_physical_devices("GPU")
    index = _gpu_index(settings.device, len(gpus))
    if index is None:
        if settings.device == "cpu":
            tf.config.set_visible_devices([], "GPU")
        return "cpu"
    tf.config.set_visible_devices([gpus[index]], "GPU")
    tf.config.experimental.set_memory_growth(gpus[index], True)
    return f"gpu:{index}"


def _gpu_index(device: str, gpus: int) -> int | None:
    """Returns which GPU `device` names, or None for the CPU."""
    if device == "cpu" or (device == "auto" and not gpus):
        return None
    match = re.fullmatch(r"auto|gpu(?::(\d+))?", device)
    if not match:
        raise ModelLoadError(f"there is no device '{device}'; choose auto, cpu, or gpu:N")
    index = int(match[1] or 0)
    if index >= gpus:
        raise ModelLoadError(f"there is no device '{device}': TensorFlow sees {gpus} GPUs here")
    return index
