"""Whole lives of a queue, in one thread, with everything that can go wrong.

The engines that run here are the shipped ones. What is made here is the world around them:
clocks, threads, the way to the store, and accidents, all chosen by one tape of numbers that a
seed makes. The same seed is the same life.
"""
