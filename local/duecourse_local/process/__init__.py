"""Functions as processes under AWS's own runtime clients."""
