"""Known vulnerabilities of what is in an image, from a database in OSV's format that a site mirrors."""
