"""Files that only the evidence reads: idx, and what is downloaded."""
