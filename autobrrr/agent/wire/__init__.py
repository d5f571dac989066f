"""The ring of step records and the framed socket to the sidecar."""
