"""From a file to columns: blocks of JSON, decoded events, numbered names."""
