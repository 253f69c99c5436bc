"""The Open Inference Protocol, version 2, over REST, with binary tensors."""
