"""The ring of step records, the framed socket to the sidecar, and the link to processes that we fork."""
