"""What happened when: intervals, launches, idle gaps, steps."""
