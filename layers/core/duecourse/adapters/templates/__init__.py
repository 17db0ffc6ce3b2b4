"""Templates in Jinja2, cut down to what can neither run for ever nor reach anything but what it is given."""
