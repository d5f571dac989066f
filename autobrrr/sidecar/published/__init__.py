"""What a session tells other programs: Prometheus, OpenTelemetry."""
