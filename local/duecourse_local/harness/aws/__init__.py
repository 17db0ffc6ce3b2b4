"""The services of AWS that functions use or are invoked by."""
