"""Lower bounds for softmax problems: many scores of a row, one certificate."""

from __future__ import annotations

from dualcore.certificates.softmax.certify import ClassCertificate, certify_classes

__all__ = ["ClassCertificate", "certify_classes"]
