"""autobrrr: find out why a running PyTorch job is slow, and cure it while it runs."""

__version__ = "0.1.0"
