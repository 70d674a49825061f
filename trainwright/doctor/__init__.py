"""What this machine lacks for building images, and the command that fixes it."""
