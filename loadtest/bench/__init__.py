"""Ways to run a batch of one workload, measured against each other in one process tree: `python -m loadtest bench`.

In the order of a run: `run.py` draws batches and their right answers, starts a worker for each framework
(`process.py`, `worker.py`), has each column of `columns.py` answer a batch, checks it, and then visits all columns
once a round; `report.py` makes the table. Only workers import TensorFlow, DyNet or JAX.
"""
