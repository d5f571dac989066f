"""Tries remedies on a running job in interleaved blocks; keeps what is proven, reverts the rest."""
