"""This machine: its package indexes, mirrors, proxies, certificate authorities, and its AWS account."""
