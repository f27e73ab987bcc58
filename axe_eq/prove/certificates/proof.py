"""Certificates as users hold them: text that knows its proof and can explain it."""

from __future__ import annotations

from axe_eq.prove.certificates.certificate import Proof, parse, written
from axe_eq.prove.certificates.steps import steps


class Certificate(str):
    """A certificate: JSON text that `check_certificate` judges and `steps` explains."""

    __slots__ = ()

    @property
    def proof(self) -> Proof:
        """The certificate as values.

        Raises:
            AxeError: the text is malformed.
        """
        return parse(self)

    def steps(self) -> str:
        """The statement and every law instance with both its sides, for people."""
        return steps(self.proof)


def write(proof: Proof) -> Certificate:
    """The certificate of a proof."""
    return Certificate(written(proof))
