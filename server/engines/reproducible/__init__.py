"""Engines whose answers' bits don't depend on traffic, and what shows that they don't. See docs/reproducible.md.

`engine.py` runs batches of fixed shapes; `choosing.py` finds programs and row sizes that give equal bits, by
`trials.py` on batches that `company.py` makes; `witnesses.py` says what is compared besides the outputs; `identity.py`
names function and machine.
"""
