"""What can be built, as data: image lines, components, their locks, and what does not go together."""
