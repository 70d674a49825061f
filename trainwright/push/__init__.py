"""From a proven image of this machine to an address by digest in an ECR registry."""
