"""What the machine shows of a job from outside: one protocol, one file a source."""
