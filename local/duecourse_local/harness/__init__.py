"""The stack on this machine: AWS's services, functions as processes or threads, Redis and the bridge."""
