"""From measurements of a live job to a verdict: signals, the table of agreement, shares, advice."""
