"""Tries remedies on a running job in interleaved blocks; keeps what is proven, undoes the rest."""
