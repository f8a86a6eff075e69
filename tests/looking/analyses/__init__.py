"""Tests of analyses."""
