"""Readers of public data sets, from a folder that the user names. Each gives a Dataset with fixed splits."""
