"""Antiphon: pretrain text encoders with any schedule of causal and masked language modelling.

The package is imported lazily: `import antiphon` costs nothing, and nothing here imports torch.
"""

__version__ = "0.1.0"
