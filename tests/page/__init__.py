"""Tests of the operators' page."""
