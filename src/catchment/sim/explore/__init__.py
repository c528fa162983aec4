"""Exhaustive exploration of small worlds: every order of steps, with the real code (`./dev explore`)."""
