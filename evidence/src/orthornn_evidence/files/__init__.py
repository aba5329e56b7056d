"""Files that only the evidence reads: the idx format, and downloads."""
