"""What every package stands on: errors, records, text, paths, external commands, and what is ours on a user's disk."""
