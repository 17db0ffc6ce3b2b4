"""The emulation of AWS on a laptop: runs what `template.yaml` describes, with no cloud account and no containers."""
