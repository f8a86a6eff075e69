"""The commands. Each file registers its own with the app; importing one must not import torch."""
