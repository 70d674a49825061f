"""An AWS on loopback, as far as shipping an image needs one: the API by moto, ECR's rules before a real registry.

``aws.emulated_aws`` is the way in; each other module is one part of it.
"""
