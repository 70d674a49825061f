"""The logs of a job that failed in the account, for `diagnose --job`."""
