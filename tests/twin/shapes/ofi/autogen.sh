#!/bin/sh
# As upstream has it.
exec autoreconf -ivf
