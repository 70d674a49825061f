"""What the developers of Trainwright run; not part of the installed package."""
