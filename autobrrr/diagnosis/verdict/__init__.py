"""From readings to one regime, or none with a reason."""
