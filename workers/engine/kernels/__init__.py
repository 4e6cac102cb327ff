"""What a CPU computes by loops of our own, compiled by numba: the decode step, and the passes over a vocabulary.

Every function here has a slow, obvious peer that its tests compare it with.
"""
