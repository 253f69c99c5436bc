"""The scheduler: pure decisions, standard library only; time is an argument."""
