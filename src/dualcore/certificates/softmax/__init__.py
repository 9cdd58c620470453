"""Lower bounds for softmax problems: many scores of a row, one certificate.

A dual point of a softmax model is that of a step from it: `certify_classes` takes steps of Newton's method or of
descent, and so both are here, below the solvers, which take more of them.
"""

from __future__ import annotations

from dualcore.certificates.softmax.certify import ClassCertificate, certify_classes

__all__ = ["ClassCertificate", "certify_classes"]
