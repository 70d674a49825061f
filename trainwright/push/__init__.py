"""Shipping: from a proven image of this machine to an address by digest in an ECR registry.

:mod:`trainwright.push.push` is the way through; the other modules hold one noun each.
"""
