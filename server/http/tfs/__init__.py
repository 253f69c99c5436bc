"""TensorFlow Serving's REST API: for clients that have it, so that they need no change."""
