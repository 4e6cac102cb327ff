"""What only a CUDA device can show; everywhere else these tests are skipped. One short command runs them all:

pytest tests/gpu -m gpu
"""
