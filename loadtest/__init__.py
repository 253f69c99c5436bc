"""Load testing: the same seeded arrivals against each engine, every reply checked.

The generator (pacer, attack, targets, checking, results, report) is a library that knows HTTP only.
"""
