"""What the commands of ``dualcore`` do, once their options are parsed."""

from __future__ import annotations
