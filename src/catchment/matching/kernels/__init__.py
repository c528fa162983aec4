"""The compiled loops of the matcher: numba functions over arrays, without Python objects.

Each function decorated with `kernel` (`jit.py`) takes arrays and numbers and writes into arrays that its caller made.
The modules beside this package check the input, make the arrays and call the kernels.
"""
